select kind, count(*)::int8 as pieces, count(done_at)::int8 as done, coalesce(sum(events), 0)::int8 as events,
    coalesce(sum(events) filter (where done_at is not null), 0)::int8 as events_done,
    coalesce(sum(cardinality(sessions)), 0)::int8 as sessions, coalesce(max(chunk_no), 0) as last
from ledger.rebuild_chunks
where rebuild_no = %(rebuild_no)s
group by kind
