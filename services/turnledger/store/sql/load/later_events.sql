-- Events of some streams beyond what is known of each: numbers above `hi`, receipts after the first `receipts`.
-- Each a range of its own of the index (`offset 0`), in the days from `day` on.
select k.session_no, e.raw, e.kafka_offset, e.stream_no, e.seq
from unnest(%(sessions)s::int8[], %(streams)s::int8[], %(his)s::int8[], %(receipts)s::int8[])
    as k (session_no, stream_no, hi, receipts)
cross join lateral (
    (
        select e.raw, e.kafka_offset, e.stream_no, e.seq, e.batch_no
        from ledger.events e
        where e.stream_no = k.stream_no and e.seq > k.hi and e.day >= %(day)s
        offset 0
    )
    union all
    (
        select e.raw, e.kafka_offset, e.stream_no, e.seq, e.batch_no
        from ledger.events e
        where e.stream_no = k.stream_no and e.seq < -k.receipts and e.day >= %(day)s
        offset 0
    )
) e
order by e.batch_no, e.kafka_offset
