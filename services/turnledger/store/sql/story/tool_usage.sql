select tool_name, sum(call_count)::int8 as calls, sum(error_count)::int8 as errors, sum(denied_count)::int8 as denied
from turnledger.tool_usage
where tenant = %(tenant)s and session_id = %(session_id)s
group by tool_name
order by tool_name collate "C"
