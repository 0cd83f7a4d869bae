-- In the order of commit, offsets of a partition rise and epochs do not fall.
select c.topic, c.partition, c.batch_no, c.from_offset, c.previous_from_offset, c.epoch, c.previous_epoch, count(*) over () as faults
from (
    select b.topic, b.partition, b.batch_no, b.from_offset, b.epoch,
        lag(b.from_offset) over committed as previous_from_offset,
        lag(b.epoch) over committed as previous_epoch
    from ledger.ingest_batches b
    window committed as (partition by b.topic, b.partition order by b.batch_no)
) c
where (c.from_offset <= c.previous_from_offset or c.epoch < c.previous_epoch) and c.batch_no >= %(floor)s
order by c.batch_no
limit %(limit)s
