-- The table of ours that has grown most since the planner was told of it, if one has threefold; not those that are small, nor those we may not analyze.
select s.schemaname, s.relname
from pg_stat_user_tables s
join pg_class c on c.oid = s.relid
where s.schemaname in ('ledger', 'projection_a', 'projection_b')
    and s.n_mod_since_analyze > greatest(%(rows)s, 2 * c.reltuples)
    and (pg_has_role(c.relowner, 'usage') or (%(can_maintain)s and has_table_privilege(c.oid, 'maintain')))
order by s.n_mod_since_analyze / greatest(%(rows)s, c.reltuples) desc
limit 1
