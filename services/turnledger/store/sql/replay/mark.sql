insert into ledger.shadow_marks (session_no) select unnest(%(sessions)s::int8[])
