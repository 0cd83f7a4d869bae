-- What the new generation tells otherwise goes out, and nothing else: turns of sessions that differ, or that moved in this very moment.
insert into ledger.outbox (session_no, turn_key)
select b.session_no, b.turn_key
from ledger.rebuild_doubts d
join {slot}.turns b on b.session_no = d.session_no
left join {live}.turns a on a.session_no = b.session_no and a.turn_key = b.turn_key
where ledger.outbox_is_on() and b.status <> 'open' and a.digest is distinct from b.digest
order by b.session_no, b.order_key
