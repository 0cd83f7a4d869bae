select stream_no, key_hash, ordinal, day
from ledger.receipts
where stream_no = any(%(streams)s)
