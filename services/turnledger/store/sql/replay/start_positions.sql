-- Where a new generation begins to follow: up to here the active one was whole, so that what is carried over from it is whole too.
insert into ledger.projection_progress (generation, topic, partition, batch_no)
select %(generation)s, p.topic, p.partition, p.flushed_batch
from ledger.ingest_progress p
on conflict (generation, topic, partition) do update set batch_no = excluded.batch_no, target = null
