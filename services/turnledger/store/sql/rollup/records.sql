select turn_no, digest, record from {slot}.turn_records where session_no = %(session_no)s and turn_no = any(%(turns)s)
