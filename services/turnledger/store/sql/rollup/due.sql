insert into {slot}.rollup_due (session_no, due_at, took_ms)
select n.session_no, clock_timestamp() + make_interval(secs => %(seconds)s), %(took_ms)s
from unnest(%(sessions)s::int8[]) n (session_no)
on conflict (session_no) do update set due_at = excluded.due_at, took_ms = excluded.took_ms
