-- The events of a session that are there, and their bytes.
select count(*), coalesce(sum(octet_length(e.raw)), 0)::int8
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
