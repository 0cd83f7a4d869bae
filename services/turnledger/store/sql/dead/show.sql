select
    d.topic, d.partition, d.kafka_offset as position, d.reason, d.field, d.detail, d.tenant, d.session_id, d.raw_bytes, d.batch_no, d.recorded_at,
    d.requeued_at, d.dead_no as id, d.outcome, d.requeue_batch, d.fixed, d.requeued_by, d.tried_at, encode(d.received_sha256, 'hex') as received_sha256,
    d.key, d.raw
from ledger.dead_letters d
where d.dead_no = %(id)s
