-- Whether a worker has still to write what some of a session's events lead to. What came through other partitions than its home was written whole.
select exists (
    select
    from ledger.sessions s
    join ledger.ingest_progress p on p.topic = s.home_topic and p.partition = s.home_partition
    join ledger.ingest_batches b on b.topic = p.topic and b.partition = p.partition and b.batch_no > p.flushed_batch
    join ledger.events e on e.batch_no = b.batch_no and e.day >= (b.committed_at at time zone 'UTC')::date
    join ledger.streams st on st.stream_no = e.stream_no
    where s.session_no = %(session_no)s and st.session_no = s.session_no
)
