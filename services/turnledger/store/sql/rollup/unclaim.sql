delete from {slot}.call_claims c
using unnest(%(identities)s::bytea[], %(keys)s::text[]) g (identity, call_key)
where c.session_no = %(session_no)s and c.identity = g.identity and c.call_key = g.call_key
