-- Every partition stands still, in the order in which everybody locks them. Tells which have batches whose projections are not whole.
select p.topic, p.partition, p.flushed_batch
from ledger.ingest_progress p
order by p.topic, p.partition
for no key update of p
