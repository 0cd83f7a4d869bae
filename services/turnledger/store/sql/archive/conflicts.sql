-- Contradictions of a tenant that were first seen on a day: the losing records themselves are nowhere.
select s.session_id, st.producer, st.epoch, st.stream, case when c.seq >= 0 then c.seq end as seq, c.receipt_key,
    encode(c.kept_sha256, 'hex') as kept_sha256, encode(c.lost_sha256, 'hex') as lost_sha256, c.count
from ledger.conflicts c
join ledger.sessions s on s.session_no = c.session_no
join ledger.streams st on st.stream_no = c.stream_no
where (c.first_at at time zone 'UTC')::date = %(day)s and s.tenant = %(tenant)s
order by s.session_id collate "C", st.producer collate "C", st.epoch, st.stream collate "C", c.seq, c.receipt_key collate "C", c.lost_sha256
