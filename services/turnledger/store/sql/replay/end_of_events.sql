-- Where the events of a day end, the last batch that is committed there by now, and how many events came from the batch `first` on.
select
    (select coalesce(max(batch_no), 0) from ledger.ingest_batches) as batch_no,
    pg_relation_size(to_regclass(%(day)s)) / 8192 as pages,
    (select coalesce(sum(accepted), 0)::int8 from ledger.ingest_batches where batch_no >= %(first)s) as events
