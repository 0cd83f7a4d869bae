-- All identities of the given calls.
select c.identity
from {slot}.call_claims c
join unnest(%(sessions)s::int8[], %(keys)s::text[]) w (session_no, call_key)
    on w.session_no = c.session_no and w.call_key = c.call_key
