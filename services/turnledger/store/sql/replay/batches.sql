-- What was committed beyond the position of a generation, partition by partition: batches of rounds and of requeues.
select b.topic, b.partition, b.batch_no, b.events, (b.committed_at at time zone 'UTC')::date as day
from (
    select topic, partition, batch_no, accepted as events, committed_at
    from ledger.ingest_batches
    where batch_no > %(least)s
    union all
    select topic, partition, batch_no, accepted, committed_at
    from ledger.requeue_batches
    where batch_no > %(least)s
) b
left join ledger.projection_progress p
    on p.generation = %(generation)s and p.topic = b.topic and p.partition = b.partition
where b.batch_no > coalesce(p.batch_no, 0)
order by b.batch_no
