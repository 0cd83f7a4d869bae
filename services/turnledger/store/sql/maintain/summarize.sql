-- Tell an index by range what was appended: until then each question reads all of it. Null: none can be told now, or there is no such index.
select ledger.summarize_ranges(to_regclass(%(index)s), %(first)s)
