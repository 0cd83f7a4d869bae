-- By identity, of which few sessions have one: `+ 0` keeps the planner from reading all claims of a session instead, which it takes for few
-- where most sessions are short.
delete from {slot}.call_claims c
using unnest(%(sessions)s::int8[], %(identities)b::bytea[], %(keys)b::text[], %(turns)s::int4[]) g (session_no, identity, call_key, turn_no)
where c.session_no + 0 = g.session_no and c.identity = g.identity and c.call_key = g.call_key and c.turn_no is not distinct from g.turn_no
