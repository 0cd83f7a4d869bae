insert into ledger.rebuilds (generation, fold_version, tenant, since, phase, started_by)
values (%(generation)s, %(fold_version)s, %(tenant)s, to_timestamp(%(since)s::float8 / 1e6), %(phase)s, %(by)s)
returning rebuild_no
