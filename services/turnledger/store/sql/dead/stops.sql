select *
from turnledger.partition_stops
where resumed_at is null
order by topic, partition
