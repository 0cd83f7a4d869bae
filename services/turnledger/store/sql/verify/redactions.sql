-- The first events of each session that ingest had to redact, in the order in which rollup/redacted_events.sql takes them, each with how many there are.
select session_no, producer, epoch, stream, seq, receipt_key, redactions, total
from (
    select
        r.session_no, st.producer, st.epoch, st.stream,
        case when r.seq >= 0 then r.seq end as seq,
        r.receipt_key,
        r.redactions,
        count(*) over (partition by r.session_no) as total,
        row_number() over (
            partition by r.session_no
            order by
                st.producer collate "C", st.epoch, st.stream collate "C",
                case when r.seq >= 0 then r.seq end nulls first, r.receipt_key collate "C" nulls first
        ) as place
    from ledger.redactions r
    join ledger.streams st on st.stream_no = r.stream_no
    where r.session_no = any(%(sessions)s)
) ranked
where place <= %(most)s
order by session_no, place
