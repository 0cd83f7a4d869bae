-- Each batch's accepted events are there or were vacuumed, the rest at offsets of the batch, and no event is of a batch that nobody wrote down: of what was read, or of what
-- was requeued (whose positions i1_requeued_events looks at).
select b.topic, b.partition, batch_no, b.from_offset, b.to_offset, b.accepted, coalesce(n.events, 0) as events,
    coalesce(v.events, 0) as vacuumed, n.first_position, n.last_position, count(*) over () as faults
from (
    select batch_no, topic, partition, from_offset, to_offset, accepted from ledger.ingest_batches where batch_no >= %(floor)s
    union all
    select batch_no, topic, partition, null, null, accepted from ledger.requeue_batches where batch_no >= %(floor)s
) b
full join (
    select e.batch_no, count(*) as events, min(e.kafka_offset) as first_position, max(e.kafka_offset) as last_position
    from ledger.events e
    where e.batch_no >= %(floor)s and e.day >= %(day)s
    group by e.batch_no
) n using (batch_no)
full join (select batch_no, events from ledger.vacuumed_batches where batch_no >= %(floor)s) v using (batch_no)
where b.accepted is distinct from coalesce(n.events, 0) + coalesce(v.events, 0) or n.first_position < b.from_offset or n.last_position >= b.to_offset
order by batch_no
limit %(limit)s
