-- Every turn that has ended.
insert into ledger.outbox (session_no, turn_key)
select t.session_no, t.turn_key
from {slot}.turns t
where t.status <> 'open'
order by t.session_no, t.order_key
