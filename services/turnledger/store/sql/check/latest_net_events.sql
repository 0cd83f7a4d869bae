select occurred_at, domain, decision, method, path, status_code, bytes_sent, bytes_received, duration_ms
from turnledger.net_events
where tenant = %(tenant)s and session_id = %(session_id)s
order by occurred_at desc nulls last
limit %(rows)s
