-- Where each partition stands, and where the batches that are looked at begin (null: it has none of them).
select p.topic, p.partition, p.first_offset, p.next_offset,
    (
        select min(b.from_offset)
        from ledger.ingest_batches b
        where b.topic = p.topic and b.partition = p.partition and b.batch_no >= %(floor)s
    ) as from_offset
from ledger.ingest_progress p
order by p.topic, p.partition
