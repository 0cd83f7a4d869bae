-- Sessions that call themselves so, or `tenant/name` so. A name is an alias: nothing is keyed by it, so it has no index, and it is asked for only where no id is meant.
select s.session_no, s.tenant, s.session_id, f.models, f.created_at
from {slot}.session_facts f
join ledger.sessions s on s.session_no = f.session_no
where (f.name = %(named)s or (f.name = any(%(ids)s) and s.tenant || '/' || f.name = %(named)s))
    and (%(tenant)s::text is null or s.tenant = %(tenant)s)
order by f.created_at desc nulls last, s.tenant, s.session_id
