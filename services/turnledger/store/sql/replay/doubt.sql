-- They were folded again: whatever was known of their comparison holds no more.
insert into ledger.rebuild_doubts (session_no)
select distinct unnest(%(sessions)s::int8[])
on conflict (session_no) do update set tables = null, difference = null
