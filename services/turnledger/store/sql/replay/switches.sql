select
    switch_no, from_generation, to_generation, fold_version, back, differences, encode(diff_sha256, 'hex') as diff_sha256, uncompared, tail_events, group_id, held_ms,
    switched_by, switched_at, why
from ledger.switches
order by switch_no desc
limit 5
