-- Each batch begins where the one before it ended.
select c.topic, c.partition, c.batch_no, c.from_offset, c.ended as previous_to_offset, count(*) over () as faults
from (
    select b.topic, b.partition, b.batch_no, b.from_offset,
        lag(b.to_offset) over (partition by b.topic, b.partition order by b.from_offset, b.batch_no) as ended
    from ledger.ingest_batches b
) c
where c.from_offset <> c.ended and c.batch_no >= %(floor)s
order by c.topic, c.partition, c.from_offset
limit %(limit)s
