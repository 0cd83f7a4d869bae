-- Partitions of events that no round writes to any more, and whether a detach of one was cut short.
select c.relname, to_date(substr(c.relname, 8), 'YYYYMMDD') as day, i.inhdetachpending
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'ledger.events'::regclass and to_date(substr(c.relname, 8), 'YYYYMMDD') < ledger.today() - %(days)s::int4
order by day
