delete from {slot}.call_overlay where session_no = %(session_no)s and turn_no is null and call_key = any(%(keys)s)
