-- The next sessions in the order of their numbers.
select session_no, tenant, session_id
from ledger.sessions
where session_no > %(after)s
order by session_no
limit %(limit)s
