-- Events of one session that came in on one day, in an order that says the same of the same set. Stream by stream, event by event: without statistics of a
-- day's table its events are all read for each session.
select st.producer, st.epoch, st.stream, e.seq, e.raw, e.received_sha256, r.redactions
from ledger.streams st
cross join lateral (
    select e.stream_no, e.seq, e.raw, e.received_sha256
    from ledger.events e
    where e.stream_no = st.stream_no and e.day = %(day)s
    offset 0
) e
left join lateral (
    select r.redactions
    from ledger.redactions r
    where r.session_no = st.session_no and r.stream_no = e.stream_no and r.seq = e.seq
    offset 0
) r on true
where st.session_no = %(session_no)s
order by st.producer collate "C", st.epoch, st.stream collate "C", e.seq < 0, abs(e.seq)
