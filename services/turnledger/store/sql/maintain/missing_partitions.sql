-- How many of the coming days have no partition: asked first, so that the usual run takes no lock.
select count(*)
from generate_series(0, %(days)s - 1) as n
where to_regclass('ledger.events_' || to_char(ledger.today() + n, 'YYYYMMDD')) is null
