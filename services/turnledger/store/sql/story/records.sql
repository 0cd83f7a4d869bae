-- The records of some turns of a session.
select turn_key, record
from turnledger.turns
where tenant = %(tenant)s and session_id = %(session_id)s and turn_key = any (%(turn_keys)s::text[])
