-- Whether turn records of a session still wait to be sent to other systems: they are made of what would go.
select exists (select from ledger.outbox where session_no = %(session_no)s)
