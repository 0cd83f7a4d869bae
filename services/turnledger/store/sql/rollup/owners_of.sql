-- Who owns the given calls as their own sessions were last rolled up, and in which turns they are.
select w.session_no, w.call_key, w.turn_no, o.owner_session_id
from unnest(%(sessions)s::int8[], %(keys)s::text[], %(turns)s::int4[]) w (session_no, call_key, turn_no)
left join {slot}.call_overlay o
    on o.session_no = w.session_no and o.call_key = w.call_key and o.turn_no is not distinct from w.turn_no
