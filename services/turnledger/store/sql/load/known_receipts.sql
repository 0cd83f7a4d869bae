select r.stream_no, r.key_hash, r.ordinal
from unnest(%(streams)s::int8[], %(hashes)s::bytea[]) as u (stream_no, key_hash)
join ledger.receipts r on r.stream_no = u.stream_no and r.key_hash = u.key_hash
