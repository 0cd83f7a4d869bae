-- Events of some batches.
-- `+ 0`: looked up in a hash of the numbers; as a condition of the index on batch_no each number is one reading of the whole index.
select st.session_no, e.stream_no, e.seq, e.kafka_offset, e.batch_no, e.raw
from ledger.events e
join ledger.streams st on st.stream_no = e.stream_no
where e.batch_no between %(first)s and %(last)s and e.batch_no + 0 = any(%(batches)s::int8[]) and e.day >= %(day)s
