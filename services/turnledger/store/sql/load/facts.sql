select session_no from {slot}.session_facts where session_no = any(%(sessions)s)
