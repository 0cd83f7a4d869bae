select identity, call_key, content from {slot}.call_claims where session_no = %(session_no)s
