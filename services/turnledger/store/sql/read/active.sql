select a.generation, g.fold_version
from turnledger.active a
left join ledger.generations g on g.generation = a.generation
