-- Too large a share of dead letters stopped these partitions (contract 15). A place has one stop: one that was resumed stays so.
insert into ledger.partition_stops (topic, partition, at_offset, dead, records_window, share, stopped_by)
select p.topic, p.partition, u.at_offset, u.dead, u.records_window, u.share, p.owner
from unnest(%(partitions)s::int4[], %(offsets)s::int8[], %(dead)s::int4[], %(windows)s::int4[], %(shares)s::float8[])
    as u (partition, at_offset, dead, records_window, share)
join ledger.ingest_progress p on p.topic = %(topic)s and p.partition = u.partition
on conflict (topic, partition, at_offset) do nothing
