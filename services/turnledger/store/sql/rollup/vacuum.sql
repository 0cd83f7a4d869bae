-- Whether a session's events are gone: then what is kept of it is read apart.
select exists (select from ledger.vacuums where session_no = %(session_no)s) as vacuumed
