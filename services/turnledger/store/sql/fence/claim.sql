-- Raise the epoch where the group is ours (or is taken over) and write who we are.
update ledger.ingest_progress
set group_id = %(group_id)s,
    owner_epoch = owner_epoch + 1,
    owner = %(owner)s,
    backend_pid = pg_backend_pid(),
    backend_start = (select backend_start from pg_stat_activity where pid = pg_backend_pid()),
    claimed_at = now()
where topic = %(topic)s
  and partition = %(partition)s
  and (group_id = %(group_id)s or %(take_over)s)
returning next_offset, owner_epoch, disturbed, anchor_offset, anchor_crc, flushed_batch
