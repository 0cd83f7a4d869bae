select * from {slot}.tool_calls where session_no = %(session_no)s
