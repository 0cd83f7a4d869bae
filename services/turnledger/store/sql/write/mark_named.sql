-- A dead letter counts in the rollup of the session that it names, where there is one (contract 12).
insert into ledger.marks (session_no, turns)
select distinct s.session_no, '{}'::int4[]
from unnest(%(tenants)s::text[], %(sessions)s::text[]) n (tenant, session_id)
join ledger.sessions s on s.tenant = n.tenant and s.session_id = n.session_id
