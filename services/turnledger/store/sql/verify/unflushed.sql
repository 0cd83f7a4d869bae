-- Batches whose projections may not be whole yet, of every partition, and the day of the oldest. From the end of each chain backwards, so that
-- it costs what waits and not what was ever read.
with recursive tail as (
    select p.topic, p.partition, p.flushed_batch, b.batch_no, b.from_offset, b.committed_at
    from ledger.ingest_progress p
    cross join lateral (
        select batch_no, from_offset, committed_at
        from ledger.ingest_batches
        where topic = p.topic and partition = p.partition
        order by from_offset desc
        limit 1
    ) b
    where b.batch_no > p.flushed_batch
    union all
    select t.topic, t.partition, t.flushed_batch, b.batch_no, b.from_offset, b.committed_at
    from tail t
    cross join lateral (
        select batch_no, from_offset, committed_at
        from ledger.ingest_batches
        where topic = t.topic and partition = t.partition and from_offset < t.from_offset
        order by from_offset desc
        limit 1
    ) b
    where b.batch_no > t.flushed_batch
)
select array_agg(batch_no), min((committed_at at time zone 'UTC')::date) from tail
