select * from {slot}.call_overlay where session_no = %(session_no)s
