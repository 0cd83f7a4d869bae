-- Sessions of which something came in since: an event, a contradiction, or a dead letter that names them.
select distinct st.session_no
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
where e.batch_no >= %(floor)s and e.day >= %(day)s
union
select c.session_no
from ledger.conflicts c
where c.last_at >= 'epoch'::timestamptz + make_interval(secs => %(since)s::int8 / 1000000.0)
union
select s.session_no
from ledger.dead_letters d
join ledger.sessions s on s.tenant = d.tenant and s.session_id = d.session_id
where greatest(d.recorded_at, d.requeued_at, d.tried_at) >= 'epoch'::timestamptz + make_interval(secs => %(since)s::int8 / 1000000.0)
order by 1
