-- What was appended and nobody told this index yet: until then each question for new batches reads all of it.
select ledger.summarize_ranges(i.named, null) from (select to_regclass(%(index)s) as named) i where i.named is not null
