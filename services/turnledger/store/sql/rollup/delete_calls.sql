delete from {slot}.call_overlay where session_no = %(session_no)s and call_key = any(%(keys)s)
