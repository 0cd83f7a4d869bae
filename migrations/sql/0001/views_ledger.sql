-- What people query: natural keys, listed columns (contract 17). Columns are added at the end only.
-- Kafka offsets are called `position`, as in the output of `turnledger fold`.

create view turnledger.events as
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
    b.topic,
    b.partition,
    e.kafka_offset as position,
    e.batch_no,
    e.day
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
join ledger.sessions s on s.session_no = st.session_no
left join ledger.ingest_batches b on b.batch_no = e.batch_no
-- `offset 0` keeps the document from being parsed once a column, or at all where no column of it is asked for.
cross join lateral (select ledger.as_jsonb(e.raw) as doc offset 0) d;

create view turnledger.gaps as
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    g.from_seq,
    g.to_seq,
    g.state,
    g.ranges,
    g.missing,
    g.opened_at,
    g.closed_at
from ledger.gaps g
join ledger.streams st on st.stream_no = g.stream_no
join ledger.sessions s on s.session_no = st.session_no;

create view turnledger.conflicts as
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when c.seq >= 0 then c.seq end as seq,
    c.receipt_key,
    encode(c.kept_sha256, 'hex') as kept_sha256,
    encode(c.lost_sha256, 'hex') as lost_sha256,
    c.count,
    c.topic,
    c.kept_partition,
    c.kept_offset as kept_position,
    c.first_partition,
    c.first_offset as first_position,
    c.last_partition,
    c.last_offset as last_position,
    c.first_at,
    c.last_at
from ledger.conflicts c
join ledger.streams st on st.stream_no = c.stream_no
join ledger.sessions s on s.session_no = c.session_no;

-- Without the raw bytes, which may hold what must not be shown (contract 14).
create view turnledger.dead_letters as
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
    d.requeued_at
from ledger.dead_letters d;

create view turnledger.ingest_batches as
select
    b.batch_no,
    b.topic,
    b.partition,
    b.epoch,
    b.from_offset,
    b.to_offset,
    b.records,
    b.holes,
    b.accepted,
    b.duplicates,
    b.unverified,
    b.conflicts,
    b.dead,
    b.committed_at
from ledger.ingest_batches b;

create view turnledger.event_bodies as
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when b.seq >= 0 then b.seq end as seq,
    b.for_event_id,
    b.source,
    b.direction,
    b.content_type,
    b.original_bytes,
    b.truncated,
    b.sha256,
    b.part,
    b.parts,
    b.data
from ledger.event_bodies b
join ledger.streams st on st.stream_no = b.stream_no
join ledger.sessions s on s.session_no = b.session_no;
