-- On which days a session's events lie, and how many there are.
select min(e.day), max(e.day), count(*)
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
