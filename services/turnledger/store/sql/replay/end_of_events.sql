-- Where the events of a day end, and the last batch that is committed there by now.
select (select coalesce(max(batch_no), 0) from ledger.ingest_batches) as batch_no, pg_relation_size(to_regclass(%(day)s)) / 8192 as pages
