-- The home's worker drops what it remembers of its sessions and decides anew (design 3.2).
update ledger.ingest_progress p
set disturbed = p.disturbed + 1
from ledger.sessions s
where s.session_no = %(session_no)s and p.topic = s.home_topic and p.partition = s.home_partition
