-- Partitions that were detached, and not dropped before the run was cut short.
select c.relname
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'ledger' and c.relkind = 'r' and c.relname ~ '^events_[0-9]{8}$'
    and to_date(substr(c.relname, 8), 'YYYYMMDD') < ledger.today() - %(days)s::int4
    and not exists (select from pg_inherits i where i.inhrelid = c.oid)
order by c.relname
