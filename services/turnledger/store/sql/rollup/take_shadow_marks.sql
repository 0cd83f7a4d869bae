-- The same of a generation that is being built: its marks are its own.
with taken as (
    delete from ledger.shadow_marks where session_no = %(session_no)s returning session_no
)
select count(*) from taken
