-- Windows in which a file watcher counted instead of telling: a row each, its size is how many changes it left out.
select count(*) as windows, sum(f.size)::int8 as deferred, min(f.occurred_at) as first_at, max(f.occurred_at) as last_at
from {slot}.fs_events f
where f.session_no = %(session_no)s and f.action = 'overflow'
