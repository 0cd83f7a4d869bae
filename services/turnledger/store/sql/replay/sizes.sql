select n.nspname::text as slot, coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 as bytes
from pg_namespace n
left join pg_class c on c.relnamespace = n.oid and c.relkind = 'r'
where n.nspname in ('projection_a', 'projection_b')
group by n.nspname
