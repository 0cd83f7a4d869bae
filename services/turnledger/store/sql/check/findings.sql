select f."check", f.severity, f.count, f.rows
from turnledger.findings f
where f.tenant = %(tenant)s and f.session_id = %(session_id)s
order by f."check"
