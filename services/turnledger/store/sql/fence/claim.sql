-- Raise the epoch where the group is ours (or is taken over) and write who we are. Tells who had it before.
with before as materialized (
    select owner
    from ledger.ingest_progress
    where topic = %(topic)s and partition = %(partition)s
    for no key update
)
update ledger.ingest_progress p
set group_id = %(group_id)s,
    owner_epoch = p.owner_epoch + 1,
    owner = %(owner)s,
    backend_pid = pg_backend_pid(),
    backend_start = (select backend_start from pg_stat_activity where pid = pg_backend_pid()),
    claimed_at = now()
from before
where p.topic = %(topic)s
  and p.partition = %(partition)s
  and (p.group_id = %(group_id)s or %(take_over)s)
returning p.next_offset, p.owner_epoch, p.disturbed, p.anchor_offset, p.anchor_crc, p.flushed_batch, before.owner
