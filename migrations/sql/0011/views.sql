-- Views with the harness ledger's own column names (capsem's session.db and main.db), each the union of both slots: `{slot}` is the schema,
-- `{letter}` the generation. Columns are added at the end only.
-- A name longer than 500 characters is shown to its 500th: that is what the indexes hold, of which an entry has a greatest size.

-- view: model_calls
select
    s.tenant,
    s.session_id,
    c.call_key,
    c.turn_key,
    c.model_call_id,
    c.message_id,
    c.request_id,
    c.trace_id,
    c.provider,
    c.protocol,
    left(c.model, 500) as model,
    c.kind,
    c.status,
    c.error_class,
    c.status_code,
    c.stop_reason,
    c.method,
    c.path,
    c.started_at,
    c.completed_at,
    c.latency_ms,
    c.ttft_ms,
    c.retries,
    c.token_convention,
    c.usage_source,
    c.fidelity,
    c.input_uncached_tokens,
    c.cache_read_tokens,
    c.cache_write_5m_tokens,
    c.cache_write_1h_tokens,
    c.cache_write_other_tokens,
    c.output_tokens,
    c.reasoning_tokens,
    c.total_input_tokens,
    c.counts,
    c.peak_input_tokens,
    c.context_tokens,
    c.context_window,
    c.messages_count,
    c.tools_count,
    c.request_bytes,
    c.response_bytes,
    c.reported_cost_usd,
    o.inherited,
    o.owner_session_id,
    o.cost_micro_usd,
    o.cost_fidelity,
    o.price_id,
    o.catalog_version,
    o.unpriced,
    -- The harness ledger's own names.
    encode(c.order_key, 'hex') as id,
    coalesce(c.completed_at, c.started_at) as "timestamp",
    t.turn_id,
    c.total_input_tokens as input_tokens,
    o.cost_micro_usd / 1000000.0 as estimated_cost_usd,
    c.latency_ms as duration_ms,
    nullif(jsonb_strip_nulls(jsonb_build_object('cache_read', c.cache_read_tokens, 'thinking', c.reasoning_tokens)), '{}') as usage_details
from {slot}.model_calls c
join ledger.sessions s on s.session_no = c.session_no
left join {slot}.turns t on t.session_no = c.session_no and t.turn_no = c.turn_no
left join {slot}.call_overlay o on o.session_no = c.session_no and o.call_key = c.call_key
where (select generation from turnledger.active) = '{letter}'

-- view: tool_calls
select
    s.tenant,
    s.session_id,
    c.tool_key,
    c.turn_key,
    c.call_id,
    left(c.tool_name, 500) as tool_name,
    c.origin,
    c.server_name,
    c.status,
    c.pairing,
    c.requested_by,
    c.consumed_by,
    c.call_index,
    c.denied_by,
    c.error_message,
    c.method,
    c.transport,
    c.request_id,
    c.duration_ms,
    c.bytes_sent,
    c.bytes_received,
    c.requested_at,
    c.completed_at,
    c.trace_id,
    c.kind,
    encode(c.order_key, 'hex') as id,
    coalesce(c.requested_at, c.completed_at) as "timestamp",
    t.turn_id,
    c.requested_by as model_call_id,
    case when 'denied' in (c.status, c.pairing) then 'denied' when c.status = 'error' then 'error' else 'allowed' end as decision
from {slot}.tool_calls c
join ledger.sessions s on s.session_no = c.session_no
left join {slot}.turns t on t.session_no = c.session_no and t.turn_no = c.turn_no
where (select generation from turnledger.active) = '{letter}'

-- view: session_summary
select
    s.session_id as id,
    s.tenant,
    s.session_id,
    p.name,
    p.agent,
    p.kind,
    p.mode,
    p.status,
    p.created_at,
    p.stopped_at,
    p.last_activity_at,
    f.fork_parent_session_id as forked_from,
    p.total_requests,
    p.allowed_requests,
    p.denied_requests,
    p.error_requests,
    p.total_input_tokens,
    p.output_tokens as total_output_tokens,
    p.cost_micro_usd / 1000000.0 as total_estimated_cost,
    p.total_tool_calls,
    p.total_file_events,
    p.exec_count,
    p.audit_event_count,
    p.model_call_count,
    p.turn_count,
    p.unpriced_calls,
    p.usage_reported,
    p.usage_total,
    p.grade,
    p.detail
from {slot}.sessions p
join ledger.sessions s on s.session_no = p.session_no
left join {slot}.session_facts f on f.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'
