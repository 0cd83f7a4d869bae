select max(batch_no) from ledger.ingest_batches where topic = %(topic)s and partition = %(partition)s
