delete from {slot}.{table} where session_no = %(session_no)s and turn_no is null
