-- The session that `sessions list` shows first; before the rollup worker has seen any, the one that came last.
select s.session_no, s.tenant, s.session_id
from ledger.sessions s
left join turnledger.sessions r on r.tenant = s.tenant and r.session_id = s.session_id
where %(tenant)s::text is null or s.tenant = %(tenant)s
order by r.last_activity_at desc nulls last, r.tenant nulls last, r.session_id nulls last, s.session_no desc
limit 1
