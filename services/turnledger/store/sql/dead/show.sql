select v.*, d.key, d.raw
from ledger.dead_letters d
join turnledger.dead_letters v on v.id = d.dead_no
where d.dead_no = %(id)s
