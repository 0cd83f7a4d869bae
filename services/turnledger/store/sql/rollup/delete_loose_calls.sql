delete from {slot}.call_overlay o
using unnest(%(sessions)s::int8[], %(keys)s::text[]) g (session_no, call_key)
where o.session_no = any(%(sessions)s::int8[]) and o.turn_no is null and o.session_no = g.session_no and o.call_key = g.call_key
