-- Every tool call of these ids, wherever it stands: ids are told apart by turn, trace and model call (contract 10).
select t.call_id, t.tool_key, t.turn_key, t.trace_id, t.tool_name, t.status, t.pairing, t.requested_by
from turnledger.tool_calls t
where t.tenant = %(tenant)s and t.session_id = %(session_id)s and t.call_id = any(%(ids)s)
order by t.call_id, t.requested_at, t.tool_key
limit 5000
