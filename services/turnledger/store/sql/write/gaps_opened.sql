-- New rows: a gap that is new now, or a piece of an older row (`source`, its first number), which began when that one did.
insert into ledger.gaps (stream_no, from_seq, to_seq, state, ranges, missing, opened_at, closed_at)
select u.stream_no, u.from_seq, u.to_seq, u.state, u.ranges, u.missing,
    coalesce(
        (select min(g.opened_at) from ledger.gaps g where g.stream_no = u.stream_no and g.from_seq = u.source and g.closed_at is null),
        now()
    ),
    case when u.state in ('filled_late', 'withdrawn') then now() end
from unnest(
    %(streams)s::int8[], %(sources)s::int8[], %(froms)s::int8[], %(tos)s::int8[], %(states)s::text[], %(ranges)s::int8[], %(missing)s::int8[]
) as u (stream_no, source, from_seq, to_seq, state, ranges, missing)
