-- The events that conflicts of some sessions lost against.
select c.session_no, c.stream_no, c.seq, c.kept_sha256, c.lost_sha256, e.raw, e.received_sha256
from ledger.conflicts c
left join ledger.events e on e.stream_no = c.stream_no and e.seq = c.seq
where c.session_no = any(%(sessions)s)
order by c.stream_no, c.seq, c.lost_sha256
