-- How each tool call of a session came out, in the order of contract 5.
select c.tool_name, c.status, c.pairing, c.turn_key, c.requested_at
from {slot}.tool_calls c
where c.session_no = %(session_no)s
order by c.order_key, c.tool_key collate "C"
