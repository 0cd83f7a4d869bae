-- A dead letter whose bytes are kept with secrets hidden is known by what came, as an event is (contract 3, 14). Null where the bytes are kept as
-- they came, and where what came has no content hash: no JSON object, or a time that is none.
alter table ledger.dead_letters add column received_sha256 bytea;

-- The surface of 0005. Columns are added at the end only.
create or replace view turnledger.dead_letters as
select
    d.topic,
    d.partition,
    d.kafka_offset as position,
    d.reason,
    d.field,
    d.detail,
    d.tenant,
    d.session_id,
    d.raw_bytes,
    d.batch_no,
    d.recorded_at,
    d.requeued_at,
    d.dead_no as id,
    d.outcome,
    d.requeue_batch,
    d.fixed,
    d.requeued_by,
    d.tried_at,
    encode(d.received_sha256, 'hex') as received_sha256
from ledger.dead_letters d;
