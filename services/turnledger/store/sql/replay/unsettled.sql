-- Those of some sessions that somebody has still to write, in one of the two generations: events of `batches`, or marks.
-- `+ 0`: looked up in a hash of the numbers; as a condition of the index on batch_no each number is one reading of the whole index.
select s.session_no,
    exists (
        select
        from ledger.streams st
        join ledger.events e on e.stream_no = st.stream_no
        where st.session_no = s.session_no and e.batch_no + 0 = any(%(batches)s::int8[]) and e.day >= %(day)s
    ) or exists (select from ledger.filled f where f.session_no = s.session_no) as moved,
    exists (select from ledger.marks m where m.session_no = s.session_no)
        or exists (select from ledger.shadow_marks m where m.session_no = s.session_no) as marked
from unnest(%(sessions)s::int8[]) s (session_no)
