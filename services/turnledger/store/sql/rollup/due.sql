insert into {slot}.rollup_due (session_no, due_at, took_ms)
values (%(session_no)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(took_ms)s)
on conflict (session_no) do update set due_at = excluded.due_at, took_ms = excluded.took_ms
