select session_no, tenant, session_id, home_topic, home_partition
from ledger.sessions
where session_no = any(%(sessions)s)
