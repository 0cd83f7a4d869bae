select count(*) filter (where tables is not null)::int8 as differences, count(*) filter (where tables is null)::int8 as in_doubt
from ledger.rebuild_doubts
