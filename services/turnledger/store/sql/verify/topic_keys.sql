-- What is stored under the keys of records that were not accepted where they stand. In every partition of events: where an event should be looked
-- for is proven elsewhere.
select r.i, st.stream_no, e.seq, e.raw, e.received_sha256, b.topic, b.partition, e.kafka_offset
from unnest(
    %(tenants)s::text[], %(sessions)s::text[], %(producers)s::text[], %(epochs)s::int8[], %(streams)s::text[], %(seqs)s::int8[],
    %(hashes)s::bytea[]
) with ordinality as r (tenant, session_id, producer, epoch, stream, seq, key_hash, i)
join ledger.sessions s on s.tenant = r.tenant and s.session_id = r.session_id
join ledger.streams st
    on st.session_no = s.session_no and st.producer = r.producer and st.epoch = r.epoch and st.stream = r.stream
left join ledger.receipts k on k.stream_no = st.stream_no and k.key_hash = r.key_hash
join ledger.events e on e.stream_no = st.stream_no and e.seq = coalesce(r.seq, -1 - k.ordinal)
left join ledger.ingest_batches b on b.batch_no = e.batch_no
