-- From which logs a tenant's events of a day came, and between which of their positions.
select b.topic, b.partition, min(e.kafka_offset) as first_position, max(e.kafka_offset) as last_position, count(*) as events
from ledger.sessions s
join ledger.streams st on st.session_no = s.session_no
join ledger.events e on e.stream_no = st.stream_no and e.day = %(day)s
join (
    select batch_no, topic, partition from ledger.ingest_batches
    union all
    select batch_no, topic, partition from ledger.requeue_batches
) b on b.batch_no = e.batch_no
where s.tenant = %(tenant)s
group by b.topic, b.partition
order by b.topic, b.partition
