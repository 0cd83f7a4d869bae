-- What names a stream that is to be left out (contract 6).
select e.raw
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s and e.type = 'stream.superseded'
