select *
from turnledger.sessions
where tenant = %(tenant)s and session_id = %(session_id)s
