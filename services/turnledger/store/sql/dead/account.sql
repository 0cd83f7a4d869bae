insert into ledger.requeue_batches (batch_no, topic, partition, letters, accepted, duplicates, unverified, conflicts, requeued_by)
select u.batch_no, %(topic)s, u.partition, u.letters, u.accepted, u.duplicates, u.unverified, u.conflicts, %(by)s
from unnest(
    %(batches)s::int8[], %(partitions)s::int4[], %(letters)s::int4[], %(accepted)s::int4[], %(duplicates)s::int4[],
    %(unverified)s::int4[], %(conflicts)s::int4[]
) as u (batch_no, partition, letters, accepted, duplicates, unverified, conflicts)
