insert into ledger.switches (
    from_generation, to_generation, fold_version, back, differences, diff_sha256, uncompared, tail_events, group_id, held_ms, switched_by, why
)
values (
    %(left)s, %(shown)s, %(fold_version)s, %(back)s, %(differences)s, %(digest)s, %(uncompared)s, %(tail_events)s, %(group)s, %(held_ms)s,
    %(by)s, %(why)s
)
returning switch_no
