-- Not by COPY: row-level security on the table forbids it to a role that does not own it.
insert into ledger.sessions (session_no, tenant, session_id, home_topic, home_partition)
select session_no, tenant, session_id, topic, partition
from unnest(%(numbers)s::int8[], %(tenants)s::text[], %(sessions)s::text[], %(topics)s::text[], %(partitions)s::int4[])
    as u (session_no, tenant, session_id, topic, partition)
