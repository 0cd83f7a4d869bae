select p.partition, p.first_offset, p.next_offset, p.group_id, p.owner,
    exists (select from pg_stat_activity a where a.pid = p.backend_pid and a.backend_start = p.backend_start) as alive,
    exists (
        select from ledger.ingest_batches b where b.topic = p.topic and b.partition = p.partition and b.batch_no > p.flushed_batch
    ) as behind
from ledger.ingest_progress p
where p.topic = %(topic)s
