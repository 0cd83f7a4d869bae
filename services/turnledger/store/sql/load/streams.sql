-- Streams of some sessions. `hi` runs late in the row: the greatest number above it stands in the events of the last day or later.
select s.stream_no, s.session_no, s.producer, s.epoch, s.stream, s.hi as stored_hi, s.low, s.holes, s.receipts, s.open_gaps,
    (
        select max(e.seq) from ledger.events e
        where e.stream_no = s.stream_no and e.seq > s.hi and e.day >= coalesce(d.day, ledger.today())
    ) as hi,
    d.day, d.seq_from, d.seq_to
from ledger.streams s
left join lateral (
    select day, seq_from, seq_to from ledger.stream_days d where d.stream_no = s.stream_no order by day desc limit 1
) d on true
where s.session_no = any(%(sessions)s)
