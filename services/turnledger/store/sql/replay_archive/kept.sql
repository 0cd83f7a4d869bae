-- The events that archived contradictions lost against, and the homes of their sessions.
select r.i, s.session_no, st.stream_no, e.seq, e.raw, e.received_sha256, s.home_topic, s.home_partition
from unnest(
    %(sessions)s::text[], %(producers)s::text[], %(epochs)s::int8[], %(streams)s::text[], %(seqs)s::int8[], %(hashes)s::bytea[]
) with ordinality as r (session_id, producer, epoch, stream, seq, key_hash, i)
join ledger.sessions s on s.tenant = %(tenant)s and s.session_id = r.session_id
join ledger.streams st
    on st.session_no = s.session_no and st.producer = r.producer and st.epoch = r.epoch and st.stream = r.stream
left join ledger.receipts k on k.stream_no = st.stream_no and k.key_hash = r.key_hash
join ledger.events e on e.stream_no = st.stream_no and e.seq = coalesce(r.seq, -1 - k.ordinal)
