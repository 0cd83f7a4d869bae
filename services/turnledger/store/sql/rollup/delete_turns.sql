delete from {slot}.turn_overlay where session_no = %(session_no)s and turn_no = any(%(turns)s)
