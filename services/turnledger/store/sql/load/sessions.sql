select s.session_no, s.tenant, s.session_id, s.home_topic, s.home_partition
from unnest(%(tenants)s::text[], %(ids)s::text[]) as u (tenant, session_id)
join ledger.sessions s on s.tenant = u.tenant and s.session_id = u.session_id
