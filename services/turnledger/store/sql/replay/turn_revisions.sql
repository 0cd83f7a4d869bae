-- A revision never falls behind that of the generation that readers saw (contract 7): it counts what was written, here and there.
-- Session by session through the indexes (`offset 0`): statistics of tables that are being filled are always behind.
with fallen as materialized (
    select f.session_no, f.turn_no, f.revision
    from unnest(%(sessions)s::int8[]) s (session_no)
    cross join lateral (
        select b.session_no, b.turn_no, a.revision + (a.digest <> b.digest)::int as revision
        from {slot}.turns b
        join {live}.turns a on a.turn_key = b.turn_key
        where b.session_no = s.session_no and a.session_no = s.session_no
            and b.revision < a.revision + (a.digest <> b.digest)::int
        offset 0
    ) f
)
update {slot}.turns b
set revision = f.revision
from fallen f
where b.session_no = f.session_no and b.turn_no = f.turn_no
returning b.session_no, b.turn_no, b.revision
