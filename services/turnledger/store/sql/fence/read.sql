select partition, next_offset, owner_epoch, disturbed, flushed_batch
from ledger.ingest_progress
where topic = %(topic)s and partition = any(%(partitions)s)
