delete from {slot}.findings where session_no = %(session_no)s and source = 'rollup'
