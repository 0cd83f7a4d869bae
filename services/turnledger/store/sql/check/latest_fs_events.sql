select occurred_at, action, path, size
from turnledger.fs_events
where tenant = %(tenant)s and session_id = %(session_id)s
order by occurred_at desc nulls last
limit %(rows)s
