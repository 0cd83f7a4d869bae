-- Who owns the given calls as their own sessions were last rolled up.
select w.session_no, w.call_key, o.owner_session_id
from unnest(%(sessions)s::int8[], %(keys)s::text[]) w (session_no, call_key)
left join {slot}.call_overlay o on o.session_no = w.session_no and o.call_key = w.call_key
