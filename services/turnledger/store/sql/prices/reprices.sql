select
    run_no, name, version, (extract(epoch from since) * 1000000)::int8 as since, (extract(epoch from until) * 1000000)::int8 as until,
    sessions, "by", why
from ledger.reprices
order by run_no
