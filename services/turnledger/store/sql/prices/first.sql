-- Version 1 is the packaged list of whoever comes first; it has always held.
insert into ledger.price_catalogues (version, published_at, source, own, "by", why)
values (1, null, %(source)s, '{"models": []}', %(by)s, 'the packaged list')
on conflict do nothing
