-- The first late events: as many as fold.vacuumed.MOST_LATE.
select st.producer, st.epoch, st.stream, case when e.seq >= 0 then e.seq end as seq, case when e.seq < 0 then e.raw end as raw
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
order by st.producer collate "C", st.epoch, st.stream collate "C", e.seq < 0, abs(e.seq)
limit %(limit)s
