select topic, partition, kafka_offset as position, reason, field, detail
from ledger.dead_letters
where tenant = %(tenant)s and session_id = %(session_id)s
order by topic, partition, kafka_offset
