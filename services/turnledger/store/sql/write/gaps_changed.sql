-- A row keeps its place in history while its hole shrinks, is declared, fills or is withdrawn.
update ledger.gaps g
set from_seq = u.from_seq, to_seq = u.to_seq, state = u.state, ranges = u.ranges, missing = u.missing,
    closed_at = case when u.state in ('filled_late', 'withdrawn') then now() end
from unnest(
    %(streams)s::int8[], %(sources)s::int8[], %(froms)s::int8[], %(tos)s::int8[], %(states)s::text[], %(ranges)s::int8[], %(missing)s::int8[]
) as u (stream_no, source, from_seq, to_seq, state, ranges, missing)
where g.stream_no = u.stream_no and g.from_seq = u.source and g.closed_at is null
