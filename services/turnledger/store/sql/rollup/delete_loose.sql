delete from {slot}.{table} where session_no = any(%(sessions)s::int8[]) and turn_no is null
