-- Sessions whose projection may not be whole yet, and those whose rollup may not be: what a worker still has to write is no fault.
select s.session_no,
    exists (
        select
        from ledger.streams st
        join ledger.events e on e.stream_no = st.stream_no
        join ledger.ingest_batches b on b.batch_no = e.batch_no
        join ledger.ingest_progress p on p.topic = b.topic and p.partition = b.partition
        where st.session_no = s.session_no and e.batch_no > p.flushed_batch
    ) as unflushed,
    exists (select from ledger.marks m where m.session_no = s.session_no) as marked
from ledger.sessions s
where s.session_no = any(%(sessions)s)
