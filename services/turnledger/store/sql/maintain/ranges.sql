-- The indexes by range of what is appended to, and the blocks that their tables have.
select i.indexrelid::regclass::text, pg_relation_size(i.indrelid) / current_setting('block_size')::int8 as blocks
from pg_index i
join pg_class c on c.oid = i.indexrelid
join pg_am a on a.oid = c.relam and a.amname = 'brin'
join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('ledger', 'projection_a', 'projection_b')
where i.indisvalid
order by 1
