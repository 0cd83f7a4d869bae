-- The same of some turns, and of what stands outside of turns: in two branches, so that each is found by the index on (session_no, turn_no).
select {columns} from {slot}.{table} where session_no = %(session_no)s and turn_no = any(%(turns)s::int4[])
union all
select {columns} from {slot}.{table} where session_no = %(session_no)s and turn_no is null
