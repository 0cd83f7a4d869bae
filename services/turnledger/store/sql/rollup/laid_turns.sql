select * from {slot}.turn_overlay where session_no = %(session_no)s
