-- Every conflict that a batch counted, of what was read or of what was requeued, is in a receipt, and the other way round. Receipts count over all batches, so these are summed too.
select coalesce(b.topic, c.topic) as topic, coalesce(b.conflicts, 0) as counted, coalesce(c.conflicts, 0) as in_receipts,
    count(*) over () as faults
from (
    select topic, sum(conflicts)::int8 as conflicts
    from (
        select topic, conflicts from ledger.ingest_batches
        union all
        select topic, conflicts from ledger.requeue_batches
    ) counted
    group by topic
) b
full join (select topic, sum(count)::int8 as conflicts from ledger.conflicts group by topic) c on c.topic = b.topic
where coalesce(b.conflicts, 0) <> coalesce(c.conflicts, 0)
order by 1
limit %(limit)s
