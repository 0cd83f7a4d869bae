-- What was appended since autovacuum last saw to the index on batch_no: until then each question for new batches reads all of it.
select brin_summarize_new_values(c.oid)
from pg_inherits h
join pg_index i on i.indrelid = h.inhrelid
join pg_class c on c.oid = i.indexrelid
join pg_am a on a.oid = c.relam
where h.inhparent = 'ledger.events'::regclass and a.amname = 'brin' and pg_has_role(c.relowner, 'USAGE')
    and to_date(substr(h.inhrelid::regclass::text, length('ledger.events_') + 1), 'YYYYMMDD') >= ledger.today() - 1
