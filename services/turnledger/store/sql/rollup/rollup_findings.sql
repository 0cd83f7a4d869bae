select "check", severity, count, rows from {slot}.findings where session_no = %(session_no)s and source = 'rollup'
