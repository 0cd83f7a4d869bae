-- The offsets of a range whose records are events where they stand. One that came into the ledger on another day than its batch is found by its key.
select e.kafka_offset
from ledger.ingest_batches b
join ledger.events e on e.batch_no = b.batch_no and e.day = (b.committed_at at time zone 'UTC')::date
where b.topic = %(topic)s and b.partition = %(partition)s and b.to_offset > %(first)s and b.from_offset <= %(last)s
    and e.kafka_offset between %(first)s and %(last)s
