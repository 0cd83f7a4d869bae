select block, share from {slot}.rollup_shares where session_no = %(session_no)s and level = %(level)s
