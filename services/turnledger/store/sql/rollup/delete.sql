delete from {slot}.{table} where session_no = any(%(sessions)s::int8[])
