-- But not of those that moved after they were compared.
delete from ledger.rebuild_doubts where session_no = any(%(sessions)s) and found_at <= %(at)s::timestamptz
