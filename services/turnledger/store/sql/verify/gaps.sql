-- The live rows: what is missing now.
select stream_no, from_seq, to_seq, state, ranges, missing
from ledger.gaps
where stream_no = any(%(streams)s) and closed_at is null
order by stream_no, from_seq
