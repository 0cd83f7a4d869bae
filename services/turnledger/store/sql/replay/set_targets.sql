-- Where the positions will be once the pieces at work are done.
insert into ledger.projection_progress (generation, topic, partition, batch_no, target)
select %(generation)s, u.topic, u.partition, 0, u.batch_no
from unnest(%(topics)s::text[], %(partitions)s::int4[], %(batches)s::int8[]) u (topic, partition, batch_no)
on conflict (generation, topic, partition) do update set target = excluded.target
