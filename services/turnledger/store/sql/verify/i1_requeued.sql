-- Each requeue's letters are there, and ended as it counted them.
select q.topic, q.partition, batch_no, q.letters, q.accepted, q.duplicates, q.conflicts,
    coalesce(n.letters, 0) as letters_found, coalesce(n.accepted, 0) as accepted_found, coalesce(n.duplicates, 0) as duplicates_found,
    coalesce(n.conflicts, 0) as conflicts_found, count(*) over () as faults
from (select * from ledger.requeue_batches where batch_no >= %(floor)s) q
full join (
    select d.requeue_batch as batch_no, count(*) as letters,
        count(*) filter (where d.outcome = 'accepted') as accepted,
        count(*) filter (where d.outcome = 'duplicate') as duplicates,
        count(*) filter (where d.outcome = 'conflict') as conflicts
    from ledger.dead_letters d
    where d.requeue_batch >= %(floor)s
    group by d.requeue_batch
) n using (batch_no)
where (q.letters, q.accepted, q.duplicates, q.conflicts)
    is distinct from (n.letters::int4, n.accepted::int4, n.duplicates::int4, n.conflicts::int4)
order by batch_no
limit %(limit)s
