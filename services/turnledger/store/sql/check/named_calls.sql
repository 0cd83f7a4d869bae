select
    c.call_key, c.turn_key, c.model_call_id, c.message_id, c.provider, c.protocol, c.model, c.status, c.status_code, c.stop_reason, c.error_class,
    c.method, c.path, c.completed_at, c.latency_ms, c.ttft_ms, c.response_bytes, c.usage_source, c.fidelity, c.output_tokens, c.total_input_tokens
from turnledger.model_calls c
where c.tenant = %(tenant)s and c.session_id = %(session_id)s and c.call_key = any(%(keys)s)
