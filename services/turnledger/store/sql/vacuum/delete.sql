delete from {slot}.{table} where session_no = %(session_no)s
