-- How many tools model calls asked for, by turn; `model_call_id` null: asked for by nobody knows whom.
select t.turn_id, t.turn_index, c.requested_by, count(*)
from {slot}.tool_calls c
left join {slot}.turns t on t.session_no = c.session_no and t.turn_no = c.turn_no
where c.session_no = %(session_no)s
  and (c.requested_by is null or c.requested_by = any (%(calls)s::text[]))
  and c.pairing is distinct from 'orphan_result'
group by t.turn_id, t.turn_index, c.requested_by
