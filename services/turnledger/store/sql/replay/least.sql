select coalesce(min(batch_no), 0) from ledger.projection_progress where generation = %(generation)s
