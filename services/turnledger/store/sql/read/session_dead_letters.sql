select *
from turnledger.dead_letters
where tenant = %(tenant)s and session_id = %(session_id)s
order by topic, partition, position
