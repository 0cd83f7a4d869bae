-- A record that ended twice: as an accepted event and as a dead letter.
select d.topic, d.partition, d.kafka_offset as position, d.reason
from ledger.dead_letters d
join ledger.ingest_batches b
    on b.topic = d.topic and b.partition = d.partition and b.from_offset <= d.kafka_offset and d.kafka_offset < b.to_offset
join ledger.events e on e.batch_no = b.batch_no and e.kafka_offset = d.kafka_offset
where d.batch_no is not null
order by 1, 2, 3
limit %(limit)s
