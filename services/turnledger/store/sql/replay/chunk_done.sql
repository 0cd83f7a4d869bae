update ledger.rebuild_chunks set done_at = clock_timestamp() where rebuild_no = %(rebuild_no)s and chunk_no = %(chunk_no)s
