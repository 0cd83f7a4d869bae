-- The tool calls of a session in the order of contract 5.
select
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
    c.denied_by,
    c.error_message,
    c.duration_ms,
    c.bytes_sent,
    c.bytes_received,
    c.requested_at,
    c.completed_at,
    c.trace_id,
    c.kind
from {slot}.tool_calls c
where c.session_no = %(session_no)s
order by c.order_key, c.tool_key collate "C"
