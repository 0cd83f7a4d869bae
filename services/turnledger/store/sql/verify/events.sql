-- Every accepted event of some sessions with the columns that find it.
select st.session_no, e.raw, e.kafka_offset, e.stream_no, e.seq, e.day, e.type, e.occurred_at
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = any(%(sessions)s)
