select t.session_no, t.turn_key, t.turn_no, t.revision, r.digest
from {slot}.turns t
join {slot}.turn_records r on r.session_no = t.session_no and r.turn_no = t.turn_no
where t.session_no = any(%(sessions)s)
