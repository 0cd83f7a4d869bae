insert into ledger.kept_declarations (session_no, stream_no, seq, running, raw)
select %(session_no)s, u.stream_no, u.seq, u.running, u.raw
from unnest(%(streams)s::int8[], %(seqs)s::int8[], %(runnings)s::int8[], %(raws)s::bytea[]) as u (stream_no, seq, running, raw)
