-- Sessions whose projection may not be whole yet, and those whose rollup may not be: what a worker still has to write is no fault.
-- `+ 0`: looked up in a hash of the numbers; as a condition of the index on batch_no each number is one reading of the whole index.
select s.session_no,
    %(unflushed)s::int8[] is not null and exists (
        select
        from ledger.streams st
        join ledger.events e on e.stream_no = st.stream_no
        where st.session_no = s.session_no and e.batch_no + 0 = any(%(unflushed)s::int8[]) and e.day >= %(day)s
    ) as unflushed,
    exists (select from ledger.marks m where m.session_no = s.session_no) as marked
from ledger.sessions s
where s.session_no = any(%(sessions)s)
