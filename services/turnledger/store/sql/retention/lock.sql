select pg_try_advisory_lock(hashtextextended('turnledger.retention', 0))
