-- What all vacuums took of sessions is what batches lack by them.
select v.events as vacuumed, b.events as of_batches, 1::int8 as faults
from (select coalesce(sum(events), 0)::int8 as events from ledger.vacuums) v
cross join (select coalesce(sum(events), 0)::int8 as events from ledger.vacuumed_batches) b
where v.events <> b.events
limit %(limit)s
