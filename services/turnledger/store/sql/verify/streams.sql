select st.session_no, st.stream_no, st.producer, st.epoch, st.stream, st.low, st.hi, st.holes, st.receipts, st.open_gaps, st.vacuumed
from ledger.streams st
where st.session_no = any(%(sessions)s)
order by st.stream_no
