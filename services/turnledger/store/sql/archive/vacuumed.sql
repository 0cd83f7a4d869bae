-- How many of a tenant's events of a day are gone already.
select coalesce(sum((v.days ->> %(day)s::text)::int8), 0)::int8
from ledger.vacuums v
join ledger.sessions s on s.session_no = v.session_no
where s.tenant = %(tenant)s and v.days ? %(day)s::text
