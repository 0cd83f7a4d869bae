-- The same of a generation that is being built: its marks are its own.
with taken as (
    delete from ledger.shadow_marks where session_no = %(session_no)s returning turns, slot
)
select
    case when t.slot = '{slot}' or t.turns = '{}' then t.turns end as turns,
    (select h.share from {slot}.rollup_shares h where h.session_no = %(session_no)s and h.level = 0 and h.block = 0) as basis
from taken t
