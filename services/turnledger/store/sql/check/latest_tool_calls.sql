select call_id, tool_name, origin, server_name, status, pairing, duration_ms, error_message
from turnledger.tool_calls
where tenant = %(tenant)s and session_id = %(session_id)s
order by requested_at desc nulls last
limit %(rows)s
