select distinct s.session_no
from ledger.ingest_batches b
join ledger.events e on e.batch_no = b.batch_no and e.day >= (b.committed_at at time zone 'UTC')::date
join ledger.streams s on s.stream_no = e.stream_no
where b.topic = %(topic)s and b.partition = %(partition)s and b.batch_no > %(flushed_batch)s
