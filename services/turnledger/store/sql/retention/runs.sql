select *
from turnledger.retention_runs
order by run_no desc
limit %(count)s
