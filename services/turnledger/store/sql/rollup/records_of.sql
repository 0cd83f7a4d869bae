select session_no, turn_no, digest, record from {slot}.turn_records where session_no = any(%(sessions)s)
