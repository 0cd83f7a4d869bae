-- Every accepted event of a session, some columns of ledger.events, about in the order of contract 5: an event that comes behind its place costs a second reading, no more.
-- Stream by stream through its index (`offset 0`): statistics that are behind would have the planner read the whole table for one session.
select {columns}
from ledger.streams st
cross join lateral (
    select e.* from ledger.events e where e.stream_no = st.stream_no offset 0
) e
where st.session_no = %(session_no)s
order by
    case
        when e.seq < 0 then e.occurred_at
        else coalesce(
            max(e.occurred_at) filter (where e.seq >= 0) over (partition by st.producer, st.stream order by st.epoch, e.seq),
            min(e.occurred_at) filter (where e.seq >= 0) over (partition by st.producer, st.stream)
        )
    end nulls last,
    e.seq < 0, st.producer, st.stream, st.epoch, abs(e.seq)
