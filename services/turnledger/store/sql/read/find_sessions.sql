-- The sessions of one id: several tenants may have one each.
select session_no, tenant, session_id
from ledger.sessions
where session_id = %(session_id)s
  and (%(tenant)s::text is null or tenant = %(tenant)s)
order by tenant
