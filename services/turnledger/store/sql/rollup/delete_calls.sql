-- `any`: as for all rows beside turns (delete_of_turns).
delete from {slot}.call_overlay o
using unnest(%(sessions)s::int8[], %(turns)s::int4[], %(keys)s::text[]) g (session_no, turn_no, call_key)
where o.session_no = any(%(sessions)s::int8[]) and o.turn_no = any(%(turns)s::int4[])
    and o.session_no = g.session_no and o.turn_no = g.turn_no and o.call_key = g.call_key
