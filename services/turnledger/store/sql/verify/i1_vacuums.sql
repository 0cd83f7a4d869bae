-- What a session's vacuums took is what its streams lack by them.
select s.tenant, s.session_id, coalesce(v.events, 0) as vacuumed, coalesce(t.events, 0) as of_streams, count(*) over () as faults
from (select session_no, sum(events)::int8 as events from ledger.vacuums group by session_no) v
full join (
    select session_no, sum(vacuumed)::int8 as events from ledger.streams where vacuumed <> 0 group by session_no
) t using (session_no)
left join ledger.sessions s using (session_no)
where coalesce(v.events, 0) <> coalesce(t.events, 0)
order by session_no
limit %(limit)s
