select call_key, provider, model, status, status_code, stop_reason, total_input_tokens, output_tokens, cost_micro_usd
from turnledger.model_calls
where tenant = %(tenant)s and session_id = %(session_id)s
order by completed_at desc nulls last
limit %(rows)s
