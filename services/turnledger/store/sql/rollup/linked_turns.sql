-- Turns of the session with calls that claim these identities.
select distinct turn_no
from {slot}.call_claims
where identity = any(%(identities)b::bytea[]) and session_no = %(session_no)s and call_key <> '' and turn_no is not null
