-- All progress rows that a foreign writer needs, its own and those of the sessions' homes, in one order for everybody.
select p.topic, p.partition
from ledger.ingest_progress p
join unnest(%(topics)s::text[], %(partitions)s::int4[]) as u (topic, partition)
    on u.topic = p.topic and u.partition = p.partition
order by p.topic, p.partition
for no key update of p
