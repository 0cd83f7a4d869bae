-- Alone: no session is rolled up meanwhile (rollup/lock_session), so that none is set by the prices of before afterwards.
select pg_advisory_xact_lock(hashtextextended('turnledger.prices', 0))
