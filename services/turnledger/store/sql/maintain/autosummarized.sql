-- Indexes of ours that have the server summarize what is appended.
select n.nspname, c.relname
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('ledger', 'projection_a', 'projection_b') and c.relkind = 'i' and c.reloptions @> array['autosummarize=on']
order by 1, 2
