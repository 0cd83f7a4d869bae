-- A projection row that Postgres would not take (contract 15). The same one may be refused again after a restart, or after it was mended.
insert into ledger.dead_letters (topic, partition, kafka_offset, reason, detail, tenant, session_id)
values (%(topic)s, %(partition)s, %(offset)s, 'refused_by_database', %(detail)s, %(tenant)s, %(session_id)s)
on conflict (topic, partition, kafka_offset, tenant, session_id) where batch_no is null do update
    set detail = excluded.detail, outcome = null, requeued_at = null, requeued_by = null
    where dead_letters.outcome is not null
