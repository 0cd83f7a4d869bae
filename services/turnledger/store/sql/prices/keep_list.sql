insert into ledger.price_lists (source, content) values (%(source)s, %(content)s) on conflict do nothing
