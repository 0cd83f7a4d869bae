-- Which of these keys are of vacuumed sessions, and of which streams: whether one was seen, their chunks or their receipts tell.
select r.i, st.stream_no, st.hi, k.key_hash is not null as received
from unnest(
    %(tenants)s::text[], %(sessions)s::text[], %(producers)s::text[], %(epochs)s::int8[], %(streams)s::text[], %(seqs)s::int8[],
    %(hashes)s::bytea[]
) with ordinality as r (tenant, session_id, producer, epoch, stream, seq, key_hash, i)
join ledger.sessions s on s.tenant = r.tenant and s.session_id = r.session_id
join ledger.streams st
    on st.session_no = s.session_no and st.producer = r.producer and st.epoch = r.epoch and st.stream = r.stream
left join ledger.receipts k on k.stream_no = st.stream_no and k.key_hash = r.key_hash
where st.vacuumed > 0
