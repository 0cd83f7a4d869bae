-- Whether somebody holds the lock of those who rebuild.
select exists (
    select
    from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database())
      and ((l.classid::int8 << 32) | l.objid::int8) = hashtextextended('turnledger.rebuild', 0)
)
