select dead_no, topic, tenant, session_id
from ledger.dead_letters
where dead_no = any(%(ids)s)
order by topic, tenant nulls first, session_id nulls first, partition, kafka_offset, dead_no
