select rebuild_no, generation, fold_version, tenant, since, phase, refused, started_by, started_at
from ledger.rebuilds
where ended_at is null
