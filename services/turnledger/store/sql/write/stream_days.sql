insert into ledger.stream_days (stream_no, day, seq_from, seq_to)
select * from unnest(%(streams)s::int8[], %(days)s::date[], %(froms)s::int8[], %(tos)s::int8[])
on conflict (stream_no, day) do update
    set seq_from = least(stream_days.seq_from, excluded.seq_from),
        seq_to = greatest(stream_days.seq_to, excluded.seq_to)
