-- `any`: of a long session the rows of these turns alone are read, however short the planner takes a session to be.
delete from {slot}.call_overlay o
using unnest(%(turns)s::int4[], %(keys)s::text[]) g (turn_no, call_key)
where o.session_no = %(session_no)s and o.turn_no = any (%(turns)s::int4[]) and o.turn_no = g.turn_no and o.call_key = g.call_key
