-- Today, where partitions may soon be given to workers of a fold version: a generation that it fills is ready to be shown.
select ledger.today()
from ledger.rebuilds
where ended_at is null and fold_version = %(fold_version)s and phase = 'ready'
