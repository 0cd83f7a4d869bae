select *
from turnledger.retention_runs
order by run desc
limit %(count)s
