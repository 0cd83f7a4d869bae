select *
from turnledger.turns
where tenant = %(tenant)s and session_id = %(session_id)s
