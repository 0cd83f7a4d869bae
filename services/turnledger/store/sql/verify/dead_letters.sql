select s.session_no, count(*) as letters, count(*) filter (where d.reason = 'refused_by_database') as refused
from ledger.sessions s
join ledger.dead_letters d on d.tenant = s.tenant and d.session_id = s.session_id
where s.session_no = any(%(sessions)s)
group by s.session_no
