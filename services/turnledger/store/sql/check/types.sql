-- What came, by stream and type: which kinds of work this session's producers tell at all.
select st.producer, st.epoch, st.stream, e.type, count(*) as events, min(e.occurred_at) as first_at, max(e.occurred_at) as last_at
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
group by st.producer, st.epoch, st.stream, e.type
order by st.producer, st.epoch, st.stream, e.type
