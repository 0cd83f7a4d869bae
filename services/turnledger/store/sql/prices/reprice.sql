insert into ledger.reprices (run_no, name, version, since, until, sessions, "by", why)
select
    coalesce(max(run_no), 0) + 1, %(name)s, %(version)s, 'epoch'::timestamptz + make_interval(secs => %(since)s::int8 / 1000000),
    'epoch'::timestamptz + make_interval(secs => %(until)s::int8 / 1000000.0), %(sessions)s, %(by)s, %(why)s
from ledger.reprices
returning run_no
