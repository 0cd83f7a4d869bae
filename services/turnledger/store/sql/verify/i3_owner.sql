-- No batch is of an epoch that no claim has reached; projections are not said to be whole beyond the last batch.
select p.topic, p.partition, p.owner_epoch, b.epoch as greatest_epoch, p.flushed_batch, b.batch_no as last_batch
from ledger.ingest_progress p
join (
    select topic, partition, max(epoch) as epoch, max(batch_no) as batch_no
    from ledger.ingest_batches
    group by topic, partition
) b on b.topic = p.topic and b.partition = p.partition
where b.epoch > p.owner_epoch or p.flushed_batch > b.batch_no
order by 1, 2
limit %(limit)s
