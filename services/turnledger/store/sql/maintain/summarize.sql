select ledger.summarize_ranges(%(index)s::int8::oid::regclass, %(first)s)
