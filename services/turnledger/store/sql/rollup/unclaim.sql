delete from {slot}.call_claims c
using unnest(%(identities)s::bytea[], %(keys)s::text[], %(turns)s::int4[]) g (identity, call_key, turn_no)
where c.session_no = %(session_no)s and c.identity = g.identity and c.call_key = g.call_key and c.turn_no is not distinct from g.turn_no
