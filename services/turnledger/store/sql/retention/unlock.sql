select pg_advisory_unlock(hashtextextended('turnledger.retention', 0))
