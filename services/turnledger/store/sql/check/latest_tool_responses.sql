select tool_call_id, model_call_id, turn_key, context_tokens
from turnledger.tool_responses
where tenant = %(tenant)s and session_id = %(session_id)s
order by occurred_at desc nulls last
limit %(rows)s
