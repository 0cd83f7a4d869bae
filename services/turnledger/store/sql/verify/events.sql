-- Every accepted event of one session with the columns that find it.
select e.raw, e.kafka_offset, e.stream_no, e.seq, e.day, e.type, e.occurred_at
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
