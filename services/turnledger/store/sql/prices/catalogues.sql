select version, (extract(epoch from published_at) * 1000000)::int8 as published_at, source, own, "by", why, at
from ledger.price_catalogues
order by version
