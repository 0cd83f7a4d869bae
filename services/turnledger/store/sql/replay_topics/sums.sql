select coalesce(sum(records), 0)::int8, coalesce(sum(known), 0)::int8, coalesce(sum(dead), 0)::int8, coalesce(sum(requeued), 0)::int8,
    coalesce(sum(filled), 0)::int8, coalesce(sum(unverified), 0)::int8, coalesce(sum(contradictions), 0)::int8,
    coalesce(sum(unaccounted), 0)::int8, coalesce(sum(others), 0)::int8
from ledger.topic_replay_partitions
where replay_no = %(replay_no)s
