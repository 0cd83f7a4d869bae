-- `story/emitted` of some turns alone: all that a page of events names.
with wanted as materialized (
    select t.session_no, t.turn_no, t.turn_id, t.turn_index
    from {slot}.turns t
    where t.session_no = %(session_no)s
      and (t.turn_id = any (%(turn_ids)s::text[]) or t.turn_index = any (%(turn_indexes)s::int8[]))
)
select w.turn_id, w.turn_index, c.requested_by, count(*)
from wanted w
join {slot}.tool_calls c on c.session_no = w.session_no and c.turn_no = w.turn_no
where (c.requested_by is null or c.requested_by = any (%(calls)s::text[]))
  and c.pairing is distinct from 'orphan_result'
group by w.turn_id, w.turn_index, c.requested_by
