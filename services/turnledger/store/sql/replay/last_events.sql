-- Events of some batches, looked for at the end of a day's events only.
select st.session_no, e.stream_no, e.seq, e.kafka_offset, e.batch_no, e.raw
from {day} e
join ledger.streams st on st.stream_no = e.stream_no
where e.ctid >= %(place)s::tid and e.batch_no between %(first)s and %(last)s and e.batch_no + 0 = any(%(batches)s::int8[])
