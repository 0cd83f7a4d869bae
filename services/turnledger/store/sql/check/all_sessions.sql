select s.session_no, s.tenant, s.session_id
from ledger.sessions s
where %(tenant)s::text is null or s.tenant = %(tenant)s
order by s.tenant, s.session_id
