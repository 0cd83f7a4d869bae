-- How far each generation that no worker writes is, partition by partition.
select p.generation, p.topic, p.partition, p.batch_no,
    coalesce((select max(b.batch_no) from ledger.ingest_batches b where b.topic = p.topic and b.partition = p.partition), 0)::int8 as last_batch
from ledger.projection_progress p
join ledger.generations g on g.generation = p.generation and g.state in ('building', 'kept')
order by p.generation, p.topic, p.partition
