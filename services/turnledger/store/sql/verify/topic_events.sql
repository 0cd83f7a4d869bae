-- The events that those batches accepted in the range: names, and a hash of their bytes.
-- Batch by batch, and names event by event (`offset 0`): as joins they had the planner read every event, or every stream, for each range.
select e.kafka_offset, n.tenant, n.session_id, n.producer, n.epoch, n.stream, e.seq, sha256(e.raw) as sha256, e.received_sha256
from ledger.ingest_batches b
cross join lateral (
    select e.stream_no, e.seq, e.kafka_offset, e.raw, e.received_sha256
    from ledger.events e
    where e.batch_no = b.batch_no and e.day = (b.committed_at at time zone 'UTC')::date and e.kafka_offset between %(first)s and %(last)s
    offset 0
) e
cross join lateral (
    select s.tenant, s.session_id, st.producer, st.epoch, st.stream
    from ledger.streams st
    join ledger.sessions s on s.session_no = st.session_no
    where st.stream_no = e.stream_no
    offset 0
) n
where b.topic = %(topic)s and b.partition = %(partition)s and b.to_offset > %(first)s and b.from_offset <= %(last)s
