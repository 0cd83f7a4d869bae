select *
from turnledger.conflicts
where tenant = %(tenant)s and session_id = %(session_id)s
order by producer, epoch, stream, seq, receipt_key, lost_sha256
