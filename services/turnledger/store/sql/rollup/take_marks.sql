-- A visible mark means that its data are visible to the next statement; later marks stay (design 5, step 2).
delete from ledger.marks where session_no = %(session_no)s
