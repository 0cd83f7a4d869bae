-- What of a session's streams is missing.
select producer, epoch, stream, from_seq, to_seq, state
from turnledger.gaps
where tenant = %(tenant)s and session_id = %(session_id)s and state in ('open', 'fragmented')
order by producer, epoch, stream, from_seq, opened_at
