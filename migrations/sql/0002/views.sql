-- The surface of 0002. Columns are added at the end only.

-- As before, but an event that came by a requeue has its partition from there.
create or replace view turnledger.events as
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when e.seq >= 0 then e.seq end as seq,
    d.doc ->> 'receipt_key' as receipt_key,
    e.type,
    e.occurred_at,
    coalesce((d.doc ->> 'schema_version')::numeric::int8, 1) as schema_version,
    coalesce(d.doc ->> 'kind', 'live') as kind,
    d.doc ->> 'run_id' as run_id,
    coalesce(d.doc ->> 'provenance', 'observed') as provenance,
    d.doc ->> 'event_id' as event_id,
    nullif(d.doc ->> 'trace_id', '') as trace_id,
    nullif(d.doc ->> 'turn_id', '') as turn_id,
    (d.doc ->> 'turn_index')::numeric::int8 as turn_index,
    nullif(d.doc ->> 'model_call_id', '') as model_call_id,
    nullif(d.doc ->> 'tool_call_id', '') as tool_call_id,
    nullif(d.doc ->> 'parent_session_id', '') as parent_session_id,
    d.doc -> 'origin' as origin,
    coalesce(d.doc -> 'payload', '{}'::jsonb) as payload,
    e.raw,
    encode(e.received_sha256, 'hex') as received_sha256,
    coalesce(b.topic, q.topic) as topic,
    coalesce(b.partition, q.partition) as partition,
    e.kafka_offset as position,
    e.batch_no,
    e.day
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
join ledger.sessions s on s.session_no = st.session_no
left join ledger.ingest_batches b on b.batch_no = e.batch_no
left join ledger.requeue_batches q on q.batch_no = e.batch_no
cross join lateral (select ledger.as_jsonb(e.raw) as doc offset 0) d;

-- Without the raw bytes, which may hold what must not be shown (contract 14). `outcome` is null while a letter is dead.
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
    d.tried_at
from ledger.dead_letters d;

create view turnledger.requeue_batches as
select
    q.batch_no,
    q.topic,
    q.partition,
    q.letters,
    q.accepted,
    q.duplicates,
    q.unverified,
    q.conflicts,
    q.requeued_by,
    q.committed_at
from ledger.requeue_batches q;

create view turnledger.partition_stops as
select
    p.topic,
    p.partition,
    p.at_offset,
    p.dead,
    p.records_window,
    p.share,
    p.stopped_by,
    p.stopped_at,
    p.resumed_by,
    p.resumed_at,
    p.resumed_why
from ledger.partition_stops p;

-- How every record of a partition has ended by now (contract 3): `dead` are the letters that are still dead, counted one by one.
create view turnledger.accounts as
select
    r.topic,
    r.partition,
    r.records,
    r.accepted + coalesce(q.accepted, 0) as accepted,
    r.duplicates + coalesce(q.duplicates, 0) as duplicates,
    r.unverified + coalesce(q.unverified, 0) as unverified,
    r.conflicts + coalesce(q.conflicts, 0) as conflicts,
    coalesce(d.dead, 0) as dead,
    coalesce(q.letters, 0) as requeued
from (
    select topic, partition, sum(records)::int8 as records, sum(accepted)::int8 as accepted, sum(duplicates)::int8 as duplicates,
        sum(unverified)::int8 as unverified, sum(conflicts)::int8 as conflicts
    from ledger.ingest_batches
    group by topic, partition
) r
left join (
    select topic, partition, sum(letters)::int8 as letters, sum(accepted)::int8 as accepted, sum(duplicates)::int8 as duplicates,
        sum(unverified)::int8 as unverified, sum(conflicts)::int8 as conflicts
    from ledger.requeue_batches
    group by topic, partition
) q on q.topic = r.topic and q.partition = r.partition
left join (
    select topic, partition, count(*)::int8 as dead
    from ledger.dead_letters
    where batch_no is not null and outcome is null
    group by topic, partition
) d on d.topic = r.topic and d.partition = r.partition;
