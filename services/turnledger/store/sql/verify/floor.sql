-- The first batch since an instant (µs since 1970) and its day; null where there is none.
select min(batch_no), min((committed_at at time zone 'UTC')::date)
from ledger.ingest_batches
where committed_at >= 'epoch'::timestamptz + make_interval(secs => %(since)s::int8 / 1000000.0)
