insert into ledger.topic_replay_partitions (replay_no, partition, from_offset, to_offset, next_offset)
select %(replay_no)s, u.partition, u.start, u."end", u.start
from unnest(%(partitions)s::int4[], %(starts)s::int8[], %(ends)s::int8[]) as u (partition, start, "end")
