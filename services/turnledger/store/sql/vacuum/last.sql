-- When events of a session went last, by whom and why, and how many went in all.
select to_char(max(vacuumed_at) at time zone 'UTC', 'YYYY-MM-DD'), (array_agg(vacuumed_by order by batch_no desc))[1],
    (array_agg(why order by batch_no desc))[1], sum(events)::int8
from ledger.vacuums
where session_no = %(session_no)s
