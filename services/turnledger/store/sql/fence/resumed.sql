-- Which of these stopped partitions somebody let go on since.
select s.partition
from unnest(%(partitions)s::int4[], %(offsets)s::int8[]) as u (partition, at_offset)
join ledger.partition_stops s on s.topic = %(topic)s and s.partition = u.partition and s.at_offset = u.at_offset
where s.resumed_at is not null
