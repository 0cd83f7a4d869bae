select *
from turnledger.gaps
where tenant = %(tenant)s and session_id = %(session_id)s
order by producer, epoch, stream, from_seq, opened_at
