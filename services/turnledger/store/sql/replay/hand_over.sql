-- Every worker drops what it remembers of the generation that was left (design 3.2: disturbed). With a group, the partitions are its own from now
-- on: a raised epoch tells whoever had them.
update ledger.ingest_progress
set disturbed = disturbed + 1,
    group_id = coalesce(%(group)s, group_id),
    owner_epoch = owner_epoch + case when %(group)s::text is null then 0 else 1 end
