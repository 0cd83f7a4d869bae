-- The latest replay of the same command that has not ended, a row a partition of its second reading (one without, where there is none).
select r.replay_no, r.started_by, r.started_at, p.partition, p.from_offset, p.to_offset, p.next_offset
from (
    select *
    from ledger.topic_replays
    where finished_at is null and topic = %(topic)s and asked_from = %(start)s and asked_to = %(end)s and partitions = %(partitions)s::int4[]
        and tenant is not distinct from %(tenant)s and session_id is not distinct from %(session_id)s
    order by replay_no desc
    limit 1
) r
left join ledger.topic_replay_partitions p on p.replay_no = r.replay_no
order by p.partition
