-- Rows that another row stands for from now on.
delete from ledger.gaps g
using unnest(%(streams)s::int8[], %(sources)s::int8[]) as u (stream_no, source)
where g.stream_no = u.stream_no and g.from_seq = u.source and g.closed_at is null
