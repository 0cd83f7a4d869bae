-- What was folded or carried over is compared in the same pieces.
insert into ledger.rebuild_chunks (rebuild_no, chunk_no, kind, sessions, events)
select rebuild_no, (select max(chunk_no) from ledger.rebuild_chunks where rebuild_no = %(rebuild_no)s) + row_number() over (order by chunk_no),
    'compare', sessions, events
from ledger.rebuild_chunks
where rebuild_no = %(rebuild_no)s and kind in ('fold', 'carry')
