select st.producer, st.epoch, st.stream, st.low, st.hi, st.holes, st.receipts, st.open_gaps, st.updated_at
from ledger.streams st
where st.session_no = %(session_no)s
order by st.producer, st.stream, st.epoch
