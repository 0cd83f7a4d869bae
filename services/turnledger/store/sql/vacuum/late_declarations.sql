-- Declarations that came since. Everything in ledger.events is late where the session is vacuumed.
select e.raw, e.kafka_offset, e.stream_no, e.seq
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s and e.type = any(%(types)s)
