-- How sessions of one tenant hang together: those named, as far as the fold has seen them.
select s.session_no, s.session_id, f.parent_session_id, f.fork_parent_session_id, f.fork_stream, f.fork_at_seq
from ledger.sessions s
join {slot}.session_facts f on f.session_no = s.session_no
where s.tenant = %(tenant)s and s.session_id = any(%(sessions)s)
