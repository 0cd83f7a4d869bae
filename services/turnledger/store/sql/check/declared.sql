-- What the producer itself said of its streams and of the session's life.
select e.raw
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s and e.type = any(%(types)s)
order by e.batch_no, e.kafka_offset
limit 200
