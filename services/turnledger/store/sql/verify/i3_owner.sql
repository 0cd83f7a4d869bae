-- No batch is of an epoch that no claim has reached; projections are not said to be whole beyond the last batch; the next offset does not
-- stand before what a batch has passed.
select p.topic, p.partition, p.next_offset, b.to_offset as last_batch_to, p.owner_epoch, b.epoch as greatest_epoch, p.flushed_batch,
    b.batch_no as last_batch, count(*) over () as faults
from ledger.ingest_progress p
join (
    select topic, partition, max(epoch) as epoch, max(batch_no) as batch_no, max(to_offset) as to_offset
    from ledger.ingest_batches
    group by topic, partition
) b on b.topic = p.topic and b.partition = p.partition
where b.epoch > p.owner_epoch or p.flushed_batch > b.batch_no or p.next_offset < b.to_offset
order by 1, 2
limit %(limit)s
