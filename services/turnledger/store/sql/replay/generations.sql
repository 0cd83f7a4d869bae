select g.generation, g.state, g.fold_version, g.changed_at
from ledger.generations g
order by g.generation
