-- Streams of sessions that have no row.
select st.stream_no, st.session_no, st.producer, st.epoch, st.stream, count(*) over () as faults
from ledger.streams st
where not exists (select from ledger.sessions s where s.session_no = st.session_no)
order by st.stream_no
limit %(limit)s
