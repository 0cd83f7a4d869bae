select * from {slot}.part_overlay where session_no = %(session_no)s
