-- Views over positions of events, each the union of both slots as in 0001: `{slot}` is the schema, `{letter}` the generation.
-- `left join ledger.streams`: every row has its stream, so it finds the same, and a question that names no stream is planned without the join.
-- The join with ledger.sessions stays an inner one: it is what a reader's tenants are told apart by.

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
    p.conn_type,
    p.request_headers,
    p.response_headers,
    p.policy_mode,
    p.policy_action,
    p.policy_rule,
    p.policy_reason
from {slot}.net_events p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
    p.resolver_ms,
    p.policy_mode,
    p.policy_action,
    p.policy_rule,
    p.policy_reason
from {slot}.dns_events p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
    p.effective,
    p.rule_id,
    p.rule_action,
    p.detection_level,
    p.rule,
    p.event
from {slot}.security_decisions p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
    p.stage,
    p.rule_id,
    p.rule_action,
    p.detection_level,
    p.rule,
    p.event,
    p.previous,
    p.requested,
    p.effective
from {slot}.security_asks p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
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
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
where (select generation from turnledger.active) = '{letter}'

-- view: model_items
select
    s.tenant,
    s.session_id,
    case
        when p.turn_id is not null then (
            select min(t.turn_key) from {slot}.turns t where t.session_no = p.session_no and t.turn_id = p.turn_id
        )
        when p.turn_index is not null then (
            select min(t.turn_key) from {slot}.turns t
            where t.session_no = p.session_no and t.turn_index = p.turn_index having count(*) = 1
        )
        when p.model_call_id is not null then (
            select min(t.turn_key) from {slot}.model_calls c
            join {slot}.turns t on t.session_no = c.session_no and t.turn_no = c.turn_no
            where c.session_no = p.session_no and c.model_call_id = p.model_call_id
            having count(distinct t.turn_key) = 1
        )
    end as turn_key,
    p.item_index,
    p.item_type,
    p.model_call_id,
    p.tool_call_id,
    p.trace_id,
    p.role,
    p.content_sha256,
    case
        when p.item_type <> 'tool_call' then (
            select ledger.as_jsonb(e.raw) -> 'payload' -> p.content_field
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as content,
    p.kind,
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
    p.turn_id,
    p.turn_index,
    p.process_name,
    p.pid,
    p.tool_call_id as call_id,
    p.tool_name,
    case
        when p.item_type = 'tool_call' then (
            select ledger.as_jsonb(e.raw) -> 'payload' -> p.content_field
            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
        )
    end as arguments,
    p.provider,
    p.model,
    p.content_bytes
from {slot}.model_items p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
where (select generation from turnledger.active) = '{letter}'

-- view: tool_responses
select
    s.tenant,
    s.session_id,
    case
        when p.turn_id is not null then (
            select min(t.turn_key) from {slot}.turns t where t.session_no = p.session_no and t.turn_id = p.turn_id
        )
        when p.turn_index is not null then (
            select min(t.turn_key) from {slot}.turns t
            where t.session_no = p.session_no and t.turn_index = p.turn_index having count(*) = 1
        )
        when p.model_call_id is not null then (
            select min(t.turn_key) from {slot}.model_calls c
            join {slot}.turns t on t.session_no = c.session_no and t.turn_no = c.turn_no
            where c.session_no = p.session_no and c.model_call_id = p.model_call_id
            having count(distinct t.turn_key) = 1
        )
    end as turn_key,
    p.tool_call_id,
    p.model_call_id,
    p.context_tokens,
    p.occurred_at,
    p.kind,
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
    p.trace_id,
    p.turn_id,
    p.turn_index,
    p.process_name,
    p.pid,
    p.tool_call_id as call_id,
    p.response_index
from {slot}.tool_responses p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.streams st on st.stream_no = p.stream_no
where (select generation from turnledger.active) = '{letter}'

-- view: event_bodies
-- The parts of a body put together, as `fold.bodies` does. A session at a time: so one session's bodies are found by its index.
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when b.seq >= 0 then b.seq end as seq,
    b.for_event_id,
    b.source,
    b.direction,
    b.content_type,
    b.original_bytes,
    case when b.complete then coalesce(b.truncated, false) or coalesce(b.there < b.original_bytes, false) else b.truncated end as truncated,
    b.sha256,
    b.part,
    b.parts,
    d.data,
    b.receipt_key,
    b.event_id,
    b.occurred_at,
    b.trace_id,
    b.turn_id,
    b.turn_index,
    b.model_call_id,
    b.tool_call_id,
    b.kind,
    b.process_name,
    b.pid,
    b.parts_present,
    b.complete,
    b.there as stored_bytes,
    case
        when not b.complete then null
        when coalesce(b.parts, 1) = 1 then b.verified
        when encode(sha256(d.data), 'hex') = lower(b.sha256) then true
        when coalesce(b.truncated, false) or coalesce(b.there < b.original_bytes, false) then null
        when b.sha256 is not null then false
    end as verified
from ledger.sessions s
cross join lateral (
    select
        w.*,
        w.parts_present = coalesce(w.parts, 1) and w.last - w.number + 1 = w.parts_present and not w.unread as complete
    from (
        select
            o.*,
            row_number() over (body order by o.number) as place,
            count(*) over (body) as parts_present,
            max(o.number) over (body) as last,
            bool_or(o.stored_bytes is null) over (body) as unread,
            (coalesce(sum(o.stored_bytes) over (body), 0))::int8 as there,
            array_agg(o.stream_no) over (body order by o.number rows between unbounded preceding and unbounded following) as streams,
            array_agg(o.seq) over (body order by o.number rows between unbounded preceding and unbounded following) as seqs
        from (
            select distinct on (r.for_event_id, r.source, r.direction, r.sha256, r.alone, r.number) r.*
            from (
                select
                    p.*,
                    coalesce(p.part, 0) as number,
                    case when p.for_event_id is null then row(p.stream_no, p.seq)::text end as alone,
                    case
                        when p.seq < 0 then (
                            select ledger.as_jsonb(e.raw) ->> 'receipt_key'
                            from ledger.events e where e.stream_no = p.stream_no and e.seq = p.seq
                        )
                    end as receipt_key
                from {slot}.event_bodies p
                where p.session_no = s.session_no
            ) r
            join ledger.streams n on n.stream_no = r.stream_no
            order by
                r.for_event_id, r.source, r.direction, r.sha256, r.alone, r.number, r.stored_bytes desc nulls last,
                n.producer collate "C", n.epoch, n.stream collate "C", r.seq < 0, case when r.seq >= 0 then r.seq end,
                r.receipt_key collate "C"
        ) o
        window body as (partition by o.for_event_id, o.source, o.direction, o.sha256, o.alone)
    ) w
    where w.place = 1
) b
join ledger.streams st on st.stream_no = b.stream_no
-- `offset 0`: the bytes are fetched once where they are asked for, and not at all elsewhere.
cross join lateral (
    select
        case
            when b.complete then (
                select string_agg(decode(ledger.as_jsonb(e.raw) -> 'payload' ->> 'data', 'base64'), ''::bytea order by u.place)
                from unnest(b.streams, b.seqs) with ordinality u (stream_no, seq, place)
                join ledger.events e on e.stream_no = u.stream_no and e.seq = u.seq
            )
        end as data
    offset 0
) d
where (select generation from turnledger.active) = '{letter}'
