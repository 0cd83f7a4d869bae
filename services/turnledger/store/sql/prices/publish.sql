-- Never before the one before it, whatever the clock says.
insert into ledger.price_catalogues (version, published_at, source, own, "by", why)
select coalesce(max(version), 0) + 1, greatest(max(published_at), clock_timestamp()), %(source)s, %(own)s, %(by)s, %(why)s
from ledger.price_catalogues
returning version, (extract(epoch from published_at) * 1000000)::int8 as published_at
