-- Bytes of the events of each session: what it would give back.
select st.session_no, sum(octet_length(e.raw))::int8 as bytes
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
group by st.session_no
