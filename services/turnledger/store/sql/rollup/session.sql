select tenant, session_id from ledger.sessions where session_no = %(session_no)s
