-- After the locks, so that its order is that of the commits (design 3.1).
select nextval('ledger.ingest_batches_batch_no_seq')
