select
    st.producer, st.epoch, st.stream,
    case when c.seq >= 0 then c.seq end as seq,
    c.receipt_key,
    encode(c.kept_sha256, 'hex') as kept_sha256,
    encode(c.lost_sha256, 'hex') as lost_sha256
from ledger.conflicts c
join ledger.streams st on st.stream_no = c.stream_no
where c.session_no = %(session_no)s
order by
    st.producer collate "C", st.epoch, st.stream collate "C",
    case when c.seq >= 0 then c.seq end nulls first, c.receipt_key collate "C" nulls first, c.lost_sha256
