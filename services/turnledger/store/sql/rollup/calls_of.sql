select s.session_id, c.session_no, {columns}
from unnest(%(sessions)s::int8[], %(keys)s::text[]) w (session_no, call_key)
join {slot}.model_calls c on c.session_no = w.session_no and c.call_key = w.call_key
join ledger.sessions s on s.session_no = c.session_no
