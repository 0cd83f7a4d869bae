-- Runs that were killed: what they let go of is written down, session by session.
update ledger.retention_runs r
set state = 'interrupted', ended_at = now(), vacuumed = n.sessions, events = n.events, event_bytes = n.bytes
from (
    select o.run_no, count(v.batch_no) as sessions, coalesce(sum(v.events), 0)::int8 as events,
        coalesce(sum(v.event_bytes), 0)::int8 as bytes
    from ledger.retention_runs o
    left join ledger.vacuums v on v.run_no = o.run_no
    where o.state = 'running'
    group by o.run_no
) n
where r.run_no = n.run_no
