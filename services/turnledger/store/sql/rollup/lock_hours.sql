select pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup hours {slot}', 0))
