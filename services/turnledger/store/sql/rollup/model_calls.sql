select * from {slot}.model_calls where session_no = %(session_no)s
