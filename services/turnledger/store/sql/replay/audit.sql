insert into ledger.audits (generation, rate, sessions, differing, unsettled, audited_by)
values (%(generation)s, %(rate)s, %(sessions)s, %(differing)s, %(unsettled)s, %(by)s)
