-- A partition that was never read begins at the earliest record (design 3.1).
insert into ledger.ingest_progress (topic, partition, group_id, first_offset, next_offset)
values (%(topic)s, %(partition)s, %(group_id)s, %(start)s, %(start)s)
on conflict (topic, partition) do nothing
