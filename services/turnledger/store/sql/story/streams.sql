select st.stream_no, st.producer, st.epoch, st.stream
from ledger.streams st
where st.session_no = %(session_no)s
