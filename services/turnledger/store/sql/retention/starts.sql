-- Where sessions say whether they are persistent.
select st.session_no, e.raw
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = any(%(sessions)s) and e.type in ('session.started', 'session.resumed')
