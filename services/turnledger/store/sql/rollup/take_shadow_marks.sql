-- The same of a generation that is being built: its marks are its own.
with taken as (
    delete from ledger.shadow_marks where session_no = any(%(sessions)s::int8[]) returning session_no, turns, slot
)
select
    t.session_no,
    case when t.slot = '{slot}' or t.turns = '{}' then t.turns end as turns,
    (select h.share from {slot}.rollup_shares h where h.session_no = t.session_no and h.level = 0 and h.block = 0) as basis
from taken t
