-- Every accepted event of some sessions.
select st.session_no, e.stream_no, e.seq, e.kafka_offset, e.batch_no, e.raw
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = any(%(sessions)s)
