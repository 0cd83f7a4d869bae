-- Which of these contradictions have a receipt.
select r.i
from unnest(%(streams)s::int8[], %(seqs)s::int8[], %(hashes)s::bytea[]) with ordinality as r (stream_no, seq, lost_sha256, i)
join ledger.conflicts c on c.stream_no = r.stream_no and c.seq = r.seq and c.lost_sha256 = r.lost_sha256
