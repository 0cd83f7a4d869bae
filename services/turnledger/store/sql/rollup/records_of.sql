select r.session_no, r.turn_no, r.digest, r.record
from unnest(%(sessions)s::int8[], %(turns)s::int4[]) n (session_no, turn_no)
join {slot}.turn_records r on r.session_no = n.session_no and r.turn_no = n.turn_no
