-- How many events some sessions have.
select st.session_no, sum(greatest(st.hi + 1 - st.holes, 0) + st.receipts)::int8 as events
from ledger.streams st
where st.session_no = any(%(sessions)s)
group by st.session_no
