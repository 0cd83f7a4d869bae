-- A record that ended twice: as an accepted event and as a dead letter.
select d.topic, d.partition, d.kafka_offset as position, d.reason, d.batch_no, count(*) over () as faults
from ledger.dead_letters d
join ledger.ingest_batches b
    on b.topic = d.topic and b.partition = d.partition and b.from_offset <= d.kafka_offset and d.kafka_offset < b.to_offset
join ledger.events e on e.batch_no = b.batch_no and e.kafka_offset = d.kafka_offset and e.day >= %(day)s
where d.batch_no is not null and b.batch_no >= %(floor)s
order by 1, 2, 3
limit %(limit)s
