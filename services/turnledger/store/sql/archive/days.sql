-- Closed days that have a partition of events.
select to_date(substr(c.relname, 8), 'YYYYMMDD') as day
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'ledger.events'::regclass and to_date(substr(c.relname, 8), 'YYYYMMDD') < %(open)s
order by day
