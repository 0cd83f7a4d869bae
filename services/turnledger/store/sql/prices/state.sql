-- What prices depend on beside the call: changes with every publication and every reprice. Nothing is published: version 0.
select
    coalesce((select max(version) from ledger.price_catalogues), 0)::int4 as version,
    coalesce((select max(run_no) from ledger.reprices), 0)::int4 as run_no
