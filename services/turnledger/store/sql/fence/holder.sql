select group_id, owner, backend_pid, backend_start, owner_epoch, claimed_at
from ledger.ingest_progress
where topic = %(topic)s and partition = %(partition)s
