select stream_no, day, seq_from, seq_to
from ledger.stream_days
where stream_no = any(%(streams)s)
