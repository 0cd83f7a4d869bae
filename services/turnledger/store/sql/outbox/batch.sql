-- The oldest rows that wait, each with its turn as it is now; without one where it is open again or was taken back.
select o.outbox_no, s.tenant, s.session_id, o.turn_key, t.revision, t.digest, r.record
from (select * from ledger.outbox order by outbox_no limit %(count)s) o
join ledger.sessions s on s.session_no = o.session_no
left join {slot}.turns t on t.session_no = o.session_no and t.turn_key = o.turn_key and t.status <> 'open'
left join {slot}.turn_records r on r.session_no = t.session_no and r.turn_no = t.turn_no
order by o.outbox_no
