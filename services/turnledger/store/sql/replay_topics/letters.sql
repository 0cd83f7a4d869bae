-- The dead letters of a range of records, and whether they still are. A row that Postgres refused is none: its event was accepted.
select d.dead_no, d.kafka_offset, d.outcome is null as is_open
from ledger.dead_letters d
where d.topic = %(topic)s and d.partition = %(partition)s and d.kafka_offset between %(first)s and %(last)s and d.batch_no is not null
