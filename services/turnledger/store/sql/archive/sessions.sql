-- What came in on a day, session by session.
select s.tenant, s.session_id, s.session_no, count(*) as events, min(e.batch_no) as first_batch, max(e.batch_no) as last_batch
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
join ledger.sessions s on s.session_no = st.session_no
where e.day = %(day)s and (%(tenant)s::text is null or s.tenant = %(tenant)s)
group by s.tenant, s.session_id, s.session_no
order by s.tenant, s.session_id
