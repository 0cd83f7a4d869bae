-- Every worker drops what it remembers of the generation that was left (design 3.2: disturbed). With a group, the partitions are its own from now
-- on: a raised epoch tells whoever had them. What readers see now is whole up to the last batch, whatever the one that was left still waited for:
-- whoever claims has no session to fold again.
update ledger.ingest_progress p
set disturbed = p.disturbed + 1,
    flushed_batch = greatest(
        p.flushed_batch,
        (
            select b.batch_no from ledger.ingest_batches b
            where b.topic = p.topic and b.partition = p.partition
            order by b.from_offset desc limit 1
        )
    ),
    group_id = coalesce(%(group)s, p.group_id),
    owner_epoch = p.owner_epoch + case when %(group)s::text is null then 0 else 1 end
