-- They were folded or rolled up again: whatever was known of their comparison holds no more. In one order: several do this at once.
insert into ledger.rebuild_doubts (session_no, found_at)
select distinct u.session_no, clock_timestamp()
from unnest(%(sessions)s::int8[]) u (session_no)
order by u.session_no
on conflict (session_no) do update set tables = null, difference = null, found_at = excluded.found_at
