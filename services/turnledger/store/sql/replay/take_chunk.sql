-- A piece that nobody is at.
select chunk_no, kind, sessions, events
from ledger.rebuild_chunks
where rebuild_no = %(rebuild_no)s and done_at is null
order by chunk_no
limit 1
for update skip locked
