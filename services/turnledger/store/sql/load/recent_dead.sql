-- Where dead letters stand among the last records of a partition. Those that were requeued since count: they were dead when they were read.
select kafka_offset
from ledger.dead_letters
where topic = %(topic)s and partition = %(partition)s and kafka_offset >= %(start)s and batch_no is not null
order by kafka_offset
