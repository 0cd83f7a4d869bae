-- Some of these sessions that can be rolled up together, are due (or not: `now`) and that nobody else rolls up, locked as lock_session does it for
-- one; and, not locked, some that stand apart: those of many turns without shares, those with kin or conflicts, and vacuumed ones. They read more
-- than their own turns, or many of them. `small`: of few turns.
with found as materialized (
    select
        s.session_no,
        not exists (select from {slot}.turns t where t.session_no = s.session_no and t.turn_no > %(turns)s) as small,
        exists (
            select from {slot}.rollup_shares h where h.session_no = s.session_no and h.level = 0 and h.block = 0
        ) as shares,
        exists (
            select from {slot}.session_facts f
            where f.session_no = s.session_no and (f.parent_session_id is not null or f.fork_parent_session_id is not null)
        )
        or exists (select from ledger.conflicts c where c.session_no = s.session_no)
        or exists (select from ledger.vacuums v where v.session_no = s.session_no) as apart,
        coalesce(
            (select d.due_at > clock_timestamp() from {slot}.rollup_due d where d.session_no = s.session_no), false
        ) as waits
    from unnest(%(sessions)s::int8[]) s (session_no)
)
select p.session_no, p.small, true as locked
from (
    select f.session_no, f.small
    from found f
    where case
        when not f.apart and (f.small or f.shares) and (%(now)s or not f.waits) then
            pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.prices', 0))
            and pg_try_advisory_xact_lock_shared(hashtextextended('turnledger.switch', 0))
            and pg_try_advisory_xact_lock(hashtextextended('turnledger.rollup {slot} ' || f.session_no, 0))
        else false
    end
    limit %(count)s
) p
union all
select a.session_no, a.small, false as locked
from (select f.session_no, f.small from found f where f.apart or not (f.small or f.shares) limit %(count)s) a
