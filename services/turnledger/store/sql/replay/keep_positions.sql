-- The generation that is left holds everything up to here.
insert into ledger.projection_progress (generation, topic, partition, batch_no)
select %(generation)s, p.topic, p.partition, p.flushed_batch
from ledger.ingest_progress p
on conflict (generation, topic, partition) do update set batch_no = excluded.batch_no, target = null
