-- Events of one session that came in on one day, in an order that says the same of the same set.
select st.producer, st.epoch, st.stream, e.seq, e.raw, e.received_sha256, r.redactions
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no and e.day = %(day)s
left join ledger.redactions r on r.session_no = st.session_no and r.stream_no = e.stream_no and r.seq = e.seq
where st.session_no = %(session_no)s
order by st.producer collate "C", st.epoch, st.stream collate "C", e.seq < 0, abs(e.seq)
