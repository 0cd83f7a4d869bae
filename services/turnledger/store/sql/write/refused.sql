-- A projection row that Postgres would not take (contract 15). The same one may be refused again after a restart, or after it was mended.
-- It points at the record that moved it; where that is not known (the session was read from the ledger) at the last one that came of the session.
insert into ledger.dead_letters (topic, partition, kafka_offset, reason, detail, tenant, session_id)
select coalesce(l.topic, %(topic)s), coalesce(l.partition, %(partition)s), coalesce(%(offset)s, l.kafka_offset, 0),
    'refused_by_database', %(detail)s, %(tenant)s, %(session_id)s
from (select 1) one
left join lateral (
    select b.topic, b.partition, e.kafka_offset
    from ledger.streams st
    join ledger.events e on e.stream_no = st.stream_no
    join ledger.ingest_batches b on b.batch_no = e.batch_no
    where st.session_no = %(session_no)s
    order by e.batch_no desc, e.kafka_offset desc
    limit 1
) l on %(offset)s::int8 is null
on conflict (topic, partition, kafka_offset, tenant, session_id) where batch_no is null do update
    set detail = excluded.detail, outcome = null, requeued_at = null, requeued_by = null
    where dead_letters.outcome is not null
