-- The latest first.
select v.*
from ledger.dead_letters d
join turnledger.dead_letters v on v.id = d.dead_no
where {chosen}
order by d.dead_no desc
limit %(count)s
