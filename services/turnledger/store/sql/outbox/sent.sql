delete from ledger.outbox where outbox_no = any(%(numbers)s)
