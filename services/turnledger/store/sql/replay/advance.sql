insert into ledger.projection_progress (generation, topic, partition, batch_no)
select %(generation)s, u.topic, u.partition, u.batch_no
from unnest(%(topics)s::text[], %(partitions)s::int4[], %(batches)s::int8[]) u (topic, partition, batch_no)
on conflict (generation, topic, partition) do update set batch_no = excluded.batch_no
