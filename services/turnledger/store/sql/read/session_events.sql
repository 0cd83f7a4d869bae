-- Every accepted event of one session. The fold is a function of the set: no order is asked for.
select e.raw, e.kafka_offset, e.stream_no, e.seq
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
