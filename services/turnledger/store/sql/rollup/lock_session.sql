-- One worker a session; another one goes on to the next.
select pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup {slot} ' || %(session_no)s::int8, 0))
