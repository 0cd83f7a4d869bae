select * from {slot}.hour_parts where session_no = %(session_no)s
