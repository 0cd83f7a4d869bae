delete from ledger.filled where id = any(%(ids)s)
