select pg_try_advisory_lock(hashtextextended('turnledger.outbox', 0))
