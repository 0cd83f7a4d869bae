-- Views over the active generation: the migration makes each the union of both slots, every branch behind
-- `(select generation from turnledger.active) = …`, so that the other slot is never executed and a switch is one update (design 6).
-- `{slot}` is the schema, `{letter}` the generation; a block begins with `-- view: NAME`.

-- view: turns
select
    s.tenant,
    s.session_id,
    t.turn_key,
    t.turn_id,
    t.turn_index,
    t.kind,
    t.run_id,
    t.status,
    t.assigned_by,
    t.started_at,
    t.completed_at,
    t.duration_ms,
    t.stop_why,
    t.round_trips,
    t.tool_call_count,
    t.event_count,
    t.message_count,
    t.inherited,
    t.gap_count,
    coalesce(o.grade, t.grade) as grade,
    case when o.turn_no is null then t.input_uncached_tokens else o.input_uncached_tokens end as input_uncached_tokens,
    case when o.turn_no is null then t.cache_read_tokens else o.cache_read_tokens end as cache_read_tokens,
    case when o.turn_no is null then t.cache_write_5m_tokens else o.cache_write_5m_tokens end as cache_write_5m_tokens,
    case when o.turn_no is null then t.cache_write_1h_tokens else o.cache_write_1h_tokens end as cache_write_1h_tokens,
    case when o.turn_no is null then t.cache_write_other_tokens else o.cache_write_other_tokens end as cache_write_other_tokens,
    case when o.turn_no is null then t.output_tokens else o.output_tokens end as output_tokens,
    case when o.turn_no is null then t.reasoning_tokens else o.reasoning_tokens end as reasoning_tokens,
    case when o.turn_no is null then t.total_input_tokens else o.total_input_tokens end as total_input_tokens,
    case when o.turn_no is null then t.usage_reported else o.usage_reported end as usage_reported,
    case when o.turn_no is null then t.usage_total else o.usage_total end as usage_total,
    o.cost_micro_usd,
    o.unpriced_calls,
    t.revision,
    t.digest,
    ledger.as_jsonb(r.record)
        || coalesce(o.overlay, '{}'::jsonb)
        || case when o.grade is null then '{}'::jsonb else jsonb_build_object('grade', o.grade) end
        || jsonb_build_object('revision', t.revision, 'digest', t.digest) as record
from {slot}.turns t
join ledger.sessions s on s.session_no = t.session_no
left join {slot}.turn_records r on r.session_no = t.session_no and r.turn_no = t.turn_no
left join {slot}.turn_overlay o on o.session_no = t.session_no and o.turn_no = t.turn_no and o.digest = t.digest
where (select generation from turnledger.active) = '{letter}'

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
    c.model,
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
    o.unpriced
from {slot}.model_calls c
join ledger.sessions s on s.session_no = c.session_no
left join {slot}.call_overlay o on o.session_no = c.session_no and o.call_key = c.call_key
where (select generation from turnledger.active) = '{letter}'

-- view: tool_calls
select
    s.tenant,
    s.session_id,
    c.tool_key,
    c.turn_key,
    c.call_id,
    c.tool_name,
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
    c.kind
from {slot}.tool_calls c
join ledger.sessions s on s.session_no = c.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: net_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.domain,
    p.port,
    p.decision,
    p.method,
    p.path,
    p.query,
    p.status_code,
    p.bytes_sent,
    p.bytes_received,
    p.duration_ms,
    p.matched_rule,
    p.conn_type
from {slot}.net_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: dns_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.qname,
    p.qtype,
    p.qclass,
    p.rcode,
    p.answer_ip,
    p.decision,
    p.matched_rule,
    p.source_proto,
    p.resolver_ms
from {slot}.dns_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: fs_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.action,
    p.path,
    p.size,
    p.entry_kind
from {slot}.fs_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: audit_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.ppid,
    p.uid,
    p.exe,
    p.argv,
    p.comm,
    p.cwd,
    p.tty,
    p.parent_exe
from {slot}.audit_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: credential_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.source,
    p.reference,
    p.outcome,
    p.provider,
    p.material
from {slot}.credential_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: security_rule_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.for_event_id,
    p.rule_id,
    p.rule_action,
    p.detection_level,
    p.rule,
    p.event
from {slot}.security_rule_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: security_decisions
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.for_event_id,
    p.stage,
    p.previous,
    p.requested,
    p.effective
from {slot}.security_decisions p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: security_asks
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.ask_id,
    p.status,
    p.for_event_id,
    p.stage
from {slot}.security_asks p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: exec_events
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when p.seq >= 0 then p.seq end as seq,
    case
        when p.seq < 0 then (
            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as receipt_key,
    p.event_id,
    p.occurred_at,
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.model_call_id,
    p.tool_call_id,
    p.kind,
    p.process_name,
    p.pid,
    p.exec_id,
    p.command,
    p.source,
    p.exit_code,
    p.duration_ms,
    p.stdout_preview,
    p.stderr_preview,
    p.stdout_bytes,
    p.stderr_bytes,
    p.started_at,
    p.exited_at
from {slot}.exec_events p
join ledger.streams st on st.stream_no = p.stream_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: model_items
select
    s.tenant,
    s.session_id,
    t.turn_key,
    p.item_index,
    p.item_type,
    p.model_call_id,
    p.tool_call_id,
    p.trace_id,
    p.role,
    p.content_sha256,
    p.content,
    p.kind
from {slot}.model_items p
join ledger.sessions s on s.session_no = p.session_no
left join {slot}.turns t on t.session_no = p.session_no and t.turn_no = p.turn_no
where (select generation from turnledger.active) = '{letter}'

-- view: tool_responses
select
    s.tenant,
    s.session_id,
    t.turn_key,
    p.tool_call_id,
    p.model_call_id,
    p.context_tokens,
    p.occurred_at,
    p.kind
from {slot}.tool_responses p
join ledger.sessions s on s.session_no = p.session_no
left join {slot}.turns t on t.session_no = p.session_no and t.turn_no = p.turn_no
where (select generation from turnledger.active) = '{letter}'

-- view: sessions
select
    s.tenant,
    s.session_id,
    p.name,
    p.agent,
    p.mode,
    p.status,
    p.kind,
    p.created_at,
    p.last_activity_at,
    p.stopped_at,
    p.models,
    p.message_count,
    p.turn_count,
    p.total_requests,
    p.allowed_requests,
    p.denied_requests,
    p.error_requests,
    p.model_call_count,
    p.failed_model_calls,
    p.input_uncached_tokens,
    p.cache_read_tokens,
    p.cache_write_5m_tokens,
    p.cache_write_1h_tokens,
    p.cache_write_other_tokens,
    p.output_tokens,
    p.reasoning_tokens,
    p.total_input_tokens,
    p.usage_reported,
    p.usage_total,
    p.cost_micro_usd,
    p.unpriced_calls,
    p.total_tool_calls,
    p.tool_errors,
    p.total_file_events,
    p.exec_count,
    p.audit_event_count,
    p.guard_blocks,
    p.guard_coercions,
    p.open_gaps,
    p.conflicts,
    p.dead_letters,
    p.grade,
    p.detail,
    p.inherited_usage
from {slot}.sessions p
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: ai_usage
select
    s.tenant,
    s.session_id,
    p.provider,
    p.model,
    p.kind,
    p.call_count,
    p.failed_count,
    p.input_uncached_tokens,
    p.cache_read_tokens,
    p.cache_write_5m_tokens,
    p.cache_write_1h_tokens,
    p.cache_write_other_tokens,
    p.output_tokens,
    p.reasoning_tokens,
    p.total_input_tokens,
    p.usage_reported,
    p.usage_total,
    p.cost_micro_usd,
    p.unpriced_calls,
    p.total_duration_ms
from {slot}.ai_usage p
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: tool_usage
select
    s.tenant,
    s.session_id,
    p.tool_name,
    p.origin,
    p.kind,
    p.call_count,
    p.error_count,
    p.denied_count,
    p.total_bytes,
    p.total_duration_ms
from {slot}.tool_usage p
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: mcp_usage
select
    s.tenant,
    s.session_id,
    p.server_name,
    p.tool_name,
    p.kind,
    p.call_count,
    p.error_count,
    p.denied_count,
    p.total_bytes,
    p.total_duration_ms
from {slot}.mcp_usage p
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'

-- view: usage_hourly
select
    p.tenant,
    p.hour,
    p.provider,
    p.model,
    p.calls,
    p.input_uncached_tokens,
    p.cache_read_tokens,
    p.cache_write_5m_tokens,
    p.cache_write_1h_tokens,
    p.cache_write_other_tokens,
    p.output_tokens,
    p.reasoning_tokens,
    p.total_input_tokens,
    p.usage_reported,
    p.usage_total,
    p.cost_micro_usd,
    p.unpriced_calls,
    p.sessions
from {slot}.usage_hourly p
where (select generation from turnledger.active) = '{letter}'

-- view: findings
select
    s.tenant,
    s.session_id,
    p."check",
    -- One check has one severity; were it not so, the gravest is shown.
    (array['error', 'warning', 'info'])[min(array_position(array['error', 'warning', 'info'], p.severity))] as severity,
    sum(p.count)::int8 as count,
    jsonb_path_query_array(jsonb_agg(p.rows order by p.source, p.turn_no), '$[*][*]') as rows
from (
    select session_no, turn_no, source, "check", severity, count, rows
    from {slot}.findings
    union all
    select
        session_no, null, 'ingest', 'key_mismatch', 'warning', count,
        jsonb_build_array(jsonb_build_object('topic', topic, 'partition', partition, 'first', first_offset, 'last', last_offset))
    from ledger.key_mismatches
) p
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'
group by s.tenant, s.session_id, p."check"
