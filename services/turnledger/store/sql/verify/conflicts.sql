select c.session_no, st.producer, st.epoch, st.stream, case when c.seq >= 0 then c.seq end as seq, c.receipt_key,
    encode(c.kept_sha256, 'hex') as kept_sha256, encode(c.lost_sha256, 'hex') as lost_sha256
from ledger.conflicts c
join ledger.streams st on st.stream_no = c.stream_no
where c.session_no = any(%(sessions)s)
order by st.producer, st.epoch, st.stream, c.seq, c.receipt_key collate "C", c.lost_sha256
