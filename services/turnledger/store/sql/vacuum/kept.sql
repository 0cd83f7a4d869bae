-- What was kept of vacuumed sessions: as it stood when their events went first, and how many went in all.
select v.session_no, sum(v.events)::int8 as events, sum(v.late)::int8 as late, max(v.batch_no) as last_batch,
    (array_agg(v.basis order by v.batch_no))[1] as basis,
    (array_agg(v.open_gaps order by v.batch_no))[1] as open_gaps,
    coalesce(
        (select f.disputed_turns from ledger.vacuums f where f.session_no = v.session_no order by f.batch_no limit 1), '{}'
    ) as disputed_turns
from ledger.vacuums v
where v.session_no = any(%(sessions)s)
group by v.session_no
