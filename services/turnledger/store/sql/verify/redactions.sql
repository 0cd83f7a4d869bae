-- In the order in which rollup/redacted_events.sql takes the first of them.
select
    r.session_no, st.producer, st.epoch, st.stream,
    case when r.seq >= 0 then r.seq end as seq,
    r.receipt_key,
    r.redactions
from ledger.redactions r
join ledger.streams st on st.stream_no = r.stream_no
where r.session_no = any(%(sessions)s)
order by
    st.producer collate "C", st.epoch, st.stream collate "C",
    case when r.seq >= 0 then r.seq end nulls first, r.receipt_key collate "C" nulls first
