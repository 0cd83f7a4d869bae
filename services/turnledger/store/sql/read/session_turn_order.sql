-- Turns in the order of contract 7, which the view's columns alone do not tell.
select turn_key
from {slot}.turns
where session_no = %(session_no)s
order by order_key, turn_key collate "C"
