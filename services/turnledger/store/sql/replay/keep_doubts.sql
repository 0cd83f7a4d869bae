-- But not of those that moved after they were compared.
insert into ledger.rebuild_doubts (session_no, tables, difference)
select u.session_no, string_to_array(u.tables, ','), u.difference
from unnest(%(sessions)s::int8[], %(tables)s::text[], %(differences)s::numeric[]) u (session_no, tables, difference)
on conflict (session_no) do update set tables = excluded.tables, difference = excluded.difference, found_at = now()
where rebuild_doubts.found_at <= %(at)s::timestamptz
