select d.reason, count(*) filter (where d.outcome is null) as open, count(*) as letters
from ledger.dead_letters d
where {chosen}
group by d.reason
order by 3 desc, 1
