-- A revision never falls behind that of the generation that readers saw (contract 7): it counts what was written, here and there.
update {slot}.turns b
set revision = a.revision + (a.digest <> b.digest)::int
from {live}.turns a
where b.session_no = any(%(sessions)s)
  and a.session_no = b.session_no and a.turn_key = b.turn_key
  and b.revision < a.revision + (a.digest <> b.digest)::int
returning b.session_no, b.turn_no, b.revision
