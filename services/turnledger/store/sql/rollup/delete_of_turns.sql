-- The rows beside these turns. `any`: of a long session no other rows are read, however short the planner takes a session to be.
delete from {slot}.{table} o
using (select distinct session_no, turn_no from unnest(%(sessions)s::int8[], %(turns)s::int4[]) g (session_no, turn_no)) g
where o.session_no = any(%(sessions)s::int8[]) and o.turn_no = any(%(turns)s::int4[])
    and o.session_no = g.session_no and o.turn_no = g.turn_no
