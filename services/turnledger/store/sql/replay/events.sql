-- Every accepted event of some sessions.
-- Stream by stream through its index (`offset 0`): statistics that are behind would have the planner read the whole table for one session.
select st.session_no, e.stream_no, e.seq, e.kafka_offset, e.batch_no, e.raw
from ledger.streams st
cross join lateral (
    select e.stream_no, e.seq, e.kafka_offset, e.batch_no, e.raw from ledger.events e where e.stream_no = st.stream_no offset 0
) e
where st.session_no = any(%(sessions)s)
