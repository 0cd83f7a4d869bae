-- The events that those batches accepted in the range: names, and a hash of their bytes.
select e.kafka_offset, s.tenant, s.session_id, st.producer, st.epoch, st.stream, e.seq, sha256(e.raw) as sha256, e.received_sha256
from ledger.ingest_batches b
join ledger.events e on e.batch_no = b.batch_no and e.day = (b.committed_at at time zone 'UTC')::date
join ledger.streams st on st.stream_no = e.stream_no
join ledger.sessions s on s.session_no = st.session_no
where b.topic = %(topic)s and b.partition = %(partition)s and b.to_offset > %(first)s and b.from_offset <= %(last)s
    and e.kafka_offset between %(first)s and %(last)s
