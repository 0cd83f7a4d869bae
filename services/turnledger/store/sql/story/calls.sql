-- The model calls of a session in the order of contract 5, which the view's columns alone do not tell; ownership and cost laid over.
select
    c.call_key,
    c.turn_key,
    c.model_call_id,
    c.message_id,
    c.request_id,
    c.trace_id,
    c.provider,
    c.model,
    c.kind,
    c.status,
    c.error_class,
    c.status_code,
    c.stop_reason,
    c.started_at,
    c.completed_at,
    c.latency_ms,
    c.ttft_ms,
    c.retries,
    c.fidelity,
    c.input_uncached_tokens,
    c.cache_read_tokens,
    c.cache_write_5m_tokens,
    c.cache_write_1h_tokens,
    c.cache_write_other_tokens,
    c.output_tokens,
    c.reasoning_tokens,
    c.total_input_tokens,
    o.inherited,
    o.owner_session_id,
    o.cost_micro_usd,
    o.cost_fidelity,
    o.unpriced
from {slot}.model_calls c
left join {slot}.call_overlay o on o.session_no = c.session_no and o.call_key = c.call_key
where c.session_no = %(session_no)s
order by c.order_key, c.call_key collate "C"
