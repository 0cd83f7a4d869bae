select count(*)
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
