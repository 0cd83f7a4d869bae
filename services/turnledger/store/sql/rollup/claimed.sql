-- Who else claims these identities.
select identity, session_no, call_key
from {slot}.call_claims
where identity = any(%(identities)b::bytea[]) and session_no <> %(session_no)s
