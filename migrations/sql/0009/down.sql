drop view turnledger.archives;
drop view turnledger.retention_runs;
drop view turnledger.vacuums;
drop table ledger.archives;
drop table ledger.retention_runs;
drop table ledger.kept_declarations;
alter table ledger.streams drop column vacuumed;
drop table ledger.vacuumed_batches;
drop table ledger.vacuums;
