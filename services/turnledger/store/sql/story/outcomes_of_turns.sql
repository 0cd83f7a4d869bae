-- How each turn of a session came out, in the order of contract 7.
select t.turn_key, t.status, t.stop_why, t.duration_ms
from {slot}.turns t
where t.session_no = %(session_no)s
order by t.order_key, t.turn_key collate "C"
