select * from {slot}.turns where session_no = %(session_no)s order by order_key, turn_key
