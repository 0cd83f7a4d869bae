-- How many marks wait, and for how long the oldest has (seconds).
select count(*), coalesce(extract(epoch from clock_timestamp() - min(at)), 0)::float8 from ledger.marks
