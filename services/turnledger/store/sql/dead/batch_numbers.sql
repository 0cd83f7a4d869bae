-- The day always, and a number for each batch.
select ledger.today(), case when n > 0 then nextval('ledger.ingest_batches_batch_no_seq') end
from generate_series(0, %(count)s) n
