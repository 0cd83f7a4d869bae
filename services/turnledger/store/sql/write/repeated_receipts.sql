select r.i, e.raw, e.received_sha256, e.kafka_offset, e.batch_no
from unnest(%(streams)s::int8[], %(seqs)s::int8[], %(hashes)s::bytea[]) with ordinality as r (stream_no, seq, key_hash, i)
join ledger.receipts k on k.stream_no = r.stream_no and k.key_hash = r.key_hash
join ledger.events e on e.stream_no = r.stream_no and e.seq = r.seq and e.day = k.day
