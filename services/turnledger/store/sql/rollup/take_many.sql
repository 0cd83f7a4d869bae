-- Marks of sessions whose locks are held.
with taken as (
    delete from ledger.marks where session_no = any(%(sessions)s) returning session_no
)
select distinct session_no from taken
