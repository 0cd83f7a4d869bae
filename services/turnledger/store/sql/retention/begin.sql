insert into ledger.retention_runs (run_by, why, rules, chosen) values (%(by)s, %(why)s, %(rules)s, %(chosen)s) returning run_no
