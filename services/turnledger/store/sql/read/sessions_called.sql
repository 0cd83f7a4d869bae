-- Sessions that a person may mean by `tenant/session_id` or by a session id alone. Both may hold slashes.
select s.session_no, s.tenant, s.session_id
from ledger.sessions s
where (
        s.session_id = %(named)s
        or (s.session_id = any(%(ids)s) and s.tenant || '/' || s.session_id = %(named)s)
    )
    and (%(tenant)s::text is null or s.tenant = %(tenant)s)
order by s.tenant, s.session_id
