select phase from ledger.rebuilds where rebuild_no = %(rebuild_no)s
