delete from ledger.rebuild_doubts where session_no = any(%(sessions)s)
