-- Every accepted event of one session. The fold is a function of the set: no order is asked for.
-- Stream by stream through its index (`offset 0`): statistics that are behind would have the planner read the whole table for one session.
select e.raw, e.kafka_offset, e.stream_no, e.seq
from ledger.streams st
cross join lateral (
    select e.raw, e.kafka_offset, e.stream_no, e.seq from ledger.events e where e.stream_no = st.stream_no offset 0
) e
where st.session_no = %(session_no)s
