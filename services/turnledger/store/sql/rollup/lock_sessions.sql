-- Some of these sessions that nobody else rolls up, as lock_session does it for one.
select s.session_no
from unnest(%(sessions)s::int8[]) s (session_no)
where pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.prices', 0))
    and pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.switch', 0))
    and pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup {slot} ' || s.session_no, 0))
limit %(count)s
