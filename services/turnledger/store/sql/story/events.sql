-- The bytes of some events, in the order in which they were asked for. The day finds the partition.
select e.raw, e.kafka_offset
from unnest(%(stream_no)s::int8[], %(seq)s::int8[], %(day)s::date[]) with ordinality w (stream_no, seq, day, place)
join ledger.events e on e.day = w.day and e.stream_no = w.stream_no and e.seq = w.seq
order by w.place
