-- Whether rows of a session's projection were refused, and nobody has requeued them.
select 1
from ledger.dead_letters
where tenant = %(tenant)s and session_id = %(session_id)s and reason = 'refused_by_database' and outcome is null
limit 1
