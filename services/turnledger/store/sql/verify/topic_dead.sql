-- The records of the range that are dead letters. A row that Postgres refused is none: its event was accepted.
select d.kafka_offset
from ledger.dead_letters d
where d.topic = %(topic)s and d.partition = %(partition)s and d.kafka_offset between %(first)s and %(last)s
    and d.reason <> 'refused_by_database'
