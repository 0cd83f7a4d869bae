-- The chain of a partition begins at its first offset and ends at its next one.
select coalesce(p.topic, b.topic) as topic, coalesce(p.partition, b.partition) as partition,
    p.first_offset, b.from_offset as first_batch_from, p.next_offset, b.to_offset as last_batch_to, count(*) over () as faults
from ledger.ingest_progress p
full join (
    select topic, partition, min(from_offset) as from_offset, max(to_offset) as to_offset
    from ledger.ingest_batches
    group by topic, partition
) b on b.topic = p.topic and b.partition = p.partition
where p.topic is null
    or coalesce(b.from_offset, p.first_offset) <> p.first_offset
    or coalesce(b.to_offset, p.first_offset) <> p.next_offset
order by 1, 2
limit %(limit)s
