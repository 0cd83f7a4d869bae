-- The pieces still to be folded with one of some sessions, once nobody is at work on any of them. Sessions stand in order in a piece.
select c.sessions
from ledger.rebuild_chunks c
where c.rebuild_no = %(rebuild_no)s and c.done_at is null and c.kind <> 'compare'
    and c.sessions[1] <= %(last)s and c.sessions[cardinality(c.sessions)] >= %(first)s
    and exists (select from unnest(c.sessions) u (session_no) where u.session_no = any(%(sessions)s::int8[]))
for update
