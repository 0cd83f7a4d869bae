-- Turns that say something else in this slot than in the other one, or that only it has.
insert into ledger.outbox (session_no, turn_key)
select n.session_no, n.turn_key
from {slot}.turns n
left join {other}.turns o on o.session_no = n.session_no and o.turn_key = n.turn_key and o.status <> 'open'
where n.status <> 'open' and o.digest is distinct from n.digest and ledger.outbox_is_on()
order by n.session_no, n.order_key
