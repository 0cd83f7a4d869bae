update ledger.generations
set state = %(state)s, fold_version = coalesce(%(fold_version)s, fold_version), changed_at = now(),
    left_xid = case when %(left)s then pg_current_xact_id() else left_xid end
where generation = %(generation)s
