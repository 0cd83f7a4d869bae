select
    t.turn_key, t.turn_id, t.turn_index, t.status, t.assigned_by, t.started_at, t.completed_at, t.stop_why, t.round_trips, t.tool_call_count,
    t.event_count, t.gap_count, t.record -> 'stop' as stop, t.record -> 'seq_spans' as seq_spans
from turnledger.turns t
where t.tenant = %(tenant)s and t.session_id = %(session_id)s and t.turn_key = any(%(keys)s)
