select dead_no, topic, partition, kafka_offset, reason, field, tenant, session_id, raw, raw_bytes, key, batch_no, outcome, received_sha256
from ledger.dead_letters
where dead_no = any(%(ids)s)
order by partition, kafka_offset, dead_no
