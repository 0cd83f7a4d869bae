-- Letters that a requeue accepted: at the position of each stands an event of that requeue, if its session was not vacuumed since.
select d.dead_no as id, d.topic, d.partition, d.kafka_offset as position, d.requeue_batch, count(*) over () as faults
from ledger.dead_letters d
where d.outcome = 'accepted'
    and d.requeue_batch >= %(floor)s
    and not exists (
        select from ledger.events e where e.batch_no = d.requeue_batch and e.kafka_offset = d.kafka_offset and e.day >= %(day)s
    )
    and not exists (
        select
        from ledger.sessions s
        join ledger.vacuums v on v.session_no = s.session_no and v.batch_no > d.requeue_batch
        where s.tenant = d.tenant and s.session_id = d.session_id
    )
order by d.dead_no
limit %(limit)s
