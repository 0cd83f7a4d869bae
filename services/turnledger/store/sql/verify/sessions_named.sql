select session_no, tenant, session_id
from ledger.sessions
where session_no = any(%(sessions)s)
order by session_no
