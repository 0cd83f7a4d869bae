-- The events at these places: by their number, or by the hash of their receipt key.
select a.place, e.raw
from unnest(%(places)s::int4[], %(producers)s::text[], %(epochs)s::int8[], %(streams)s::text[], %(seqs)s::int8[], %(keys)s::bytea[])
    as a (place, producer, epoch, stream, seq, key)
join ledger.streams st
    on st.session_no = %(session_no)s and st.producer = a.producer and st.epoch = a.epoch and st.stream = a.stream
left join ledger.receipts r on a.seq is null and r.stream_no = st.stream_no and r.key_hash = a.key
join ledger.events e on e.stream_no = st.stream_no and e.seq = coalesce(a.seq, -1 - r.ordinal)
