select * from {slot}.usage_parts where session_no = %(session_no)s
