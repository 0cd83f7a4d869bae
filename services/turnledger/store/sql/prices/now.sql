select (extract(epoch from clock_timestamp()) * 1000000)::int8
