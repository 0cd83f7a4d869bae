select count(*), coalesce(extract(epoch from now() - min(written_at)), 0)::float8, ledger.outbox_is_on() from ledger.outbox
