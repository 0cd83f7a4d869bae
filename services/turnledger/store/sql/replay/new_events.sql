-- Events of some batches that do not stand in some pages of a day, with the bytes of those of some sessions that are not held (a stream and a batch each).
-- `+ 0`: looked up in a hash of the numbers; as a condition of the index on batch_no each number is one reading of the whole index.
select
    st.session_no, e.stream_no, e.seq, e.kafka_offset, e.batch_no,
    case when w.session_no is not null and h.stream_no is null then e.raw end as raw
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
left join unnest(%(warm)s::int8[]) w (session_no) on w.session_no = st.session_no
left join unnest(%(held_streams)s::int8[], %(held_batches)s::int8[]) h (stream_no, batch_no)
    on h.stream_no = e.stream_no and h.batch_no = e.batch_no
where e.batch_no between %(first)s and %(last)s and e.batch_no + 0 = any(%(batches)s::int8[]) and e.day >= %(day)s
    and not (e.tableoid = to_regclass(%(looked_in)s) and e.ctid >= %(place)s::tid and e.ctid < %(past)s::tid)
