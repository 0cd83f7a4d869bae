-- Which prices there are now (prices/state), in the round trip of a session's rows.
select
    coalesce((select max(version) from ledger.price_catalogues), 0)::int4 as version,
    coalesce((select max(run_no) from ledger.reprices), 0)::int4 as run_no
