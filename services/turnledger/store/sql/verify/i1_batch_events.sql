-- Each batch's accepted events are there, and no event is of a batch that nobody wrote down.
select b.topic, b.partition, batch_no, b.accepted, coalesce(n.events, 0) as events
from ledger.ingest_batches b
full join (select e.batch_no, count(*) as events from ledger.events e group by e.batch_no) n using (batch_no)
where b.accepted is distinct from coalesce(n.events, 0)
order by batch_no
limit %(limit)s
