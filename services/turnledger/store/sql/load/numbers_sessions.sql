select nextval('ledger.sessions_session_no_seq') from generate_series(1, %(count)s)
