delete from {slot}.findings where session_no = any(%(sessions)s::int8[]) and turn_no is null and source = 'rollup'
