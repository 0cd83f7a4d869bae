select count(*)::int8 as events from ledger.redactions where session_no = %(session_no)s
