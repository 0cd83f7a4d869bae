-- Calls of some sessions of one tenant that another of them may hold too, and those that say they are inherited: what owners are decided by.
select
    c.session_no, c.call_key, c.order_key, c.provider, c.model, c.message_id, c.model_call_id, c.turn_key, c.kind, c.inherited_event,
    c.least_at, c.input_uncached_tokens, c.cache_read_tokens, c.cache_write_5m_tokens, c.cache_write_1h_tokens, c.cache_write_other_tokens,
    c.output_tokens, c.reasoning_tokens, c.total_input_tokens
from {slot}.model_calls c
where c.session_no = any(%(sessions)s)
    and (
        c.inherited_event
        or c.message_id in (
            select o.message_id from {slot}.model_calls o
            where o.session_no = any(%(sessions)s) group by o.message_id having min(o.session_no) <> max(o.session_no)
        )
        or c.model_call_id in (
            select o.model_call_id from {slot}.model_calls o
            where o.session_no = any(%(sessions)s) group by o.model_call_id having min(o.session_no) <> max(o.session_no)
        )
    )
