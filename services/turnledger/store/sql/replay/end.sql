update ledger.rebuilds set ended_at = now(), outcome = %(outcome)s where rebuild_no = %(rebuild_no)s
