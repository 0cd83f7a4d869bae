select * from {slot}.session_facts where session_no = %(session_no)s
