-- Each batch's dead letters are there, at offsets of the batch. One of a row that Postgres refused names no batch: its event was accepted.
select coalesce(b.topic, n.topic) as topic, coalesce(b.partition, n.partition) as partition, batch_no, b.from_offset, b.to_offset, b.dead,
    coalesce(n.letters, 0) as letters, n.first_position, n.last_position, count(*) over () as faults
from (select * from ledger.ingest_batches where batch_no >= %(floor)s) b
full join (
    select d.batch_no, min(d.topic) as topic, min(d.partition) as partition, count(*) as letters,
        min(d.kafka_offset) as first_position, max(d.kafka_offset) as last_position,
        count(distinct (d.topic, d.partition)) as places
    from ledger.dead_letters d
    where d.batch_no >= %(floor)s
    group by d.batch_no
) n using (batch_no)
where b.dead is distinct from coalesce(n.letters, 0)
    or n.places > 1 or n.topic <> b.topic or n.partition <> b.partition
    or n.first_position < b.from_offset or n.last_position >= b.to_offset
order by batch_no
limit %(limit)s
