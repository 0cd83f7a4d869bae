select d.dead_no
from ledger.dead_letters d
where {chosen}
order by d.dead_no
