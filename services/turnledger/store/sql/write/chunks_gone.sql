delete from ledger.stream_chunks c
using unnest(%(streams)s::int8[], %(chunks)s::int8[]) as u (stream_no, chunk)
where c.stream_no = u.stream_no and c.chunk = u.chunk
