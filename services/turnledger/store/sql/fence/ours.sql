-- Which of these partitions belong to our group: a fleet that stands by asks, and takes what is given to it (design 6). Locks nothing.
select partition
from ledger.ingest_progress
where topic = %(topic)s and partition = any(%(partitions)s) and group_id = %(group_id)s
