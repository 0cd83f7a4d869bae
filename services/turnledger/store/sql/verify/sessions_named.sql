select s.session_no, s.tenant, s.session_id,
    coalesce((select sum(st.hi + 1 - st.holes + st.receipts) from ledger.streams st where st.session_no = s.session_no), 0)::int8 as events
from ledger.sessions s
where s.session_no = any(%(sessions)s)
order by s.session_no
