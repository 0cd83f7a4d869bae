update ledger.rebuilds set phase = %(phase)s where rebuild_no = %(rebuild_no)s
