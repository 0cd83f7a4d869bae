-- Who may still read what readers were switched away from: their snapshots are older than that.
select a.pid, a.application_name, a.xact_start
from pg_stat_activity a, ledger.generations g
where g.generation = %(generation)s and g.left_xid is not null
  and a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
  and age(a.backend_xmin) >= age(g.left_xid::xid)
order by a.xact_start
limit 1
