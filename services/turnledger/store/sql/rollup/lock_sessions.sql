-- Some of these sessions that nobody else rolls up, as lock_session does it for one, and that are short: a long one is read by itself.
with short as materialized (
    select s.session_no
    from unnest(%(sessions)s::int8[]) s (session_no)
    where not exists (select from {slot}.turns t where t.session_no = s.session_no and t.turn_no > %(long)s)
)
select s.session_no
from short s
where pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.prices', 0))
    and pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.switch', 0))
    and pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup {slot} ' || s.session_no, 0))
limit %(count)s
