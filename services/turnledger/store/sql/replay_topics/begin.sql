insert into ledger.topic_replays (topic, asked_from, asked_to, partitions, tenant, session_id, started_by)
values (%(topic)s, %(start)s, %(end)s, %(partitions)s::int4[], %(tenant)s, %(session_id)s, %(by)s)
returning replay_no, started_at
