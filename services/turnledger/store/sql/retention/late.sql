-- Vacuumed sessions to which something came since, and when the last of it did.
select s.session_no, s.tenant, s.session_id, max(st.updated_at) as last_arrival
from (select distinct session_no from ledger.vacuums) v
join ledger.sessions s on s.session_no = v.session_no
join ledger.streams st on st.session_no = v.session_no
where (%(tenant)s::text is null or s.tenant = %(tenant)s)
    and exists (
        select
        from ledger.streams t
        join ledger.events e on e.stream_no = t.stream_no
        where t.session_no = v.session_no
    )
group by s.session_no, s.tenant, s.session_id
order by last_arrival, s.session_no
