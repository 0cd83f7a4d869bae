-- By now, too: records read = accepted + duplicates + conflicts + those that are still dead, counted letter by letter (contract 3).
select a.topic, a.partition, a.records, a.accepted, a.duplicates, a.conflicts, a.dead, a.requeued, count(*) over () as faults
from turnledger.accounts a
where a.records <> a.accepted + a.duplicates + a.conflicts + a.dead
order by a.topic, a.partition
limit %(limit)s
