select *
from turnledger.findings
where tenant = %(tenant)s and session_id = %(session_id)s
order by "check"
