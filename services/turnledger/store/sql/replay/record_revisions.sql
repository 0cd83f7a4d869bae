update {slot}.turn_records r
set revision = u.revision
from unnest(%(sessions)s::int8[], %(turns)s::int4[], %(revisions)s::int4[]) u (session_no, turn_no, revision)
where r.session_no = u.session_no and r.turn_no = u.turn_no
