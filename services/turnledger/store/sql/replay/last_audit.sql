select sessions, differing, extract(epoch from now() - audited_at)::float8 as age from ledger.audits order by audit_no desc limit 1
