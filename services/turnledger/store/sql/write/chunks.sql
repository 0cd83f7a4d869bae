insert into ledger.stream_chunks (stream_no, chunk, bits)
select * from unnest(%(streams)s::int8[], %(chunks)s::int8[], %(bits)s::bytea[])
on conflict (stream_no, chunk) do update set bits = excluded.bits
