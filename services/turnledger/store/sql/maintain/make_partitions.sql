select ledger.make_event_partitions(ledger.today(), %(days)s)
