-- The lock of whoever rolls the session up (rollup/lock_session), in both generations: while it is held nobody reads half of what goes.
select pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup projection_a ' || %(session_no)s::int8, 0))
    and pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup projection_b ' || %(session_no)s::int8, 0))
