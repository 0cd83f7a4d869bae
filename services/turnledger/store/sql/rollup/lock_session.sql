-- One worker a session; another one goes on to the next. No session while a catalogue is published or a reprice is run (prices/lock), or while
-- readers are switched to another generation (design 6). And: is it not due (yet, or any more, since another worker has just done it)?
select
    pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.prices', 0))
        and pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.switch', 0))
        and pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup {slot} ' || %(session_no)s::int8, 0)) as locked,
    coalesce((select due_at > clock_timestamp() from {slot}.rollup_due where session_no = %(session_no)s), false) as waits
