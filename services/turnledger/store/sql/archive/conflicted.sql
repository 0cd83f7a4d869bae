-- Tenants with contradictions that were first seen on a day.
select s.tenant, count(*)
from ledger.conflicts c
join ledger.sessions s on s.session_no = c.session_no
where (c.first_at at time zone 'UTC')::date = %(day)s and (%(tenant)s::text is null or s.tenant = %(tenant)s)
group by s.tenant
