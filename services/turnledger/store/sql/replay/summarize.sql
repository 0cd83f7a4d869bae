-- What was appended since autovacuum last saw to an index on batch_no: until then each question for new batches reads all of it.
select brin_summarize_new_values(c.oid)
from pg_class c
where c.oid = to_regclass(%(index)s) and pg_has_role(c.relowner, 'USAGE')
