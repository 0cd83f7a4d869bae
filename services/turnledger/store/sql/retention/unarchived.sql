-- Days on which events of a session came in that no archive of its tenant holds.
select d.day
from (
    select e.day, max(e.batch_no) as last_batch
    from ledger.streams st
    join ledger.events e on e.stream_no = st.stream_no
    where st.session_no = %(session_no)s
    group by e.day
) d
where not exists (
    select
    from ledger.archives a
    join ledger.sessions s on s.tenant = a.tenant
    where s.session_no = %(session_no)s and a.day = d.day and a.last_batch >= d.last_batch
)
order by d.day
