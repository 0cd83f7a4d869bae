-- The latest sessions, as the rollup worker set them.
select *
from turnledger.sessions
where %(tenant)s::text is null or tenant = %(tenant)s
order by last_activity_at desc nulls last, tenant, session_id
limit %(count)s
