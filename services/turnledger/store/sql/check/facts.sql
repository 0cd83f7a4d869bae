select f.name, f.agent, f.mode, f.status, f.kind, f.models, f.parent_session_id, f.created_at, f.last_activity_at, f.stopped_at, f.event_count
from {slot}.session_facts f
where f.session_no = %(session_no)s
