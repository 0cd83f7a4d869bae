-- Sessions with events of some batches.
select distinct st.session_no
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
where e.batch_no between %(first)s and %(last)s and e.batch_no = any(%(batches)s::int8[]) and e.day >= %(day)s
