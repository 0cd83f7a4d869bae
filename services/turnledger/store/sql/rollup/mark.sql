insert into ledger.marks (session_no) select unnest(%(sessions)s::int8[])
