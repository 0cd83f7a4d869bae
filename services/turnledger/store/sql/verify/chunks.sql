select stream_no, chunk, bits
from ledger.stream_chunks
where stream_no = any(%(streams)s)
