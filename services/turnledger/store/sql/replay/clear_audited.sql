delete from {slot}.findings where session_no = any(%(sessions)s) and turn_no is null and source = 'audit'
