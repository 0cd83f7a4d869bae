-- Whether a partition stands where dead letters stopped it, and the last place from which somebody let it go on.
select
    max(at_offset) filter (where resumed_at is not null) as resumed,
    max(at_offset) filter (where resumed_at is null and at_offset = %(next_offset)s) as stopped,
    max(dead) filter (where resumed_at is null and at_offset = %(next_offset)s) as dead,
    max(records_window) filter (where resumed_at is null and at_offset = %(next_offset)s) as records_window,
    max(share) filter (where resumed_at is null and at_offset = %(next_offset)s) as share
from ledger.partition_stops
where topic = %(topic)s and partition = %(partition)s
