delete from {slot}.{table} where session_no = %(session_no)s and turn_no = any(%(turns)s::int4[])
