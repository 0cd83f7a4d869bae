delete from {slot}.findings where session_no = %(session_no)s and turn_no is null and source = 'rollup'
