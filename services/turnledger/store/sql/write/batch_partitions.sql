select batch_no, partition from ledger.ingest_batches where batch_no = any(%(batches)s)
union all
select batch_no, partition from ledger.requeue_batches where batch_no = any(%(batches)s)
