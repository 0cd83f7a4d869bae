-- Sessions at home on some partitions that have events among the last pages of a day: those that are busy.
-- Found by where they stand, because the index on batch_no knows late what was appended last. First the streams (`materialized`): from them
-- on it is looked up, never joined with whole tables.
with last as materialized (
    select distinct stream_no
    from {day}
    where ctid >= (select format('(%%s,0)', greatest(0, pg_relation_size(to_regclass(%(table)s)) / 8192 - %(pages)s))::tid)
)
select distinct s.session_no
from last l
cross join lateral (select session_no from ledger.streams where stream_no = l.stream_no offset 0) st
cross join lateral (
    select session_no, home_topic, home_partition from ledger.sessions where session_no = st.session_no offset 0
) s
where s.home_topic = %(topic)s and s.home_partition = any(%(partitions)s)
