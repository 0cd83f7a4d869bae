update ledger.retention_runs
set state = 'ended', ended_at = now(), vacuumed = %(vacuumed)s, left_alone = %(left_alone)s, events = %(events)s,
    event_bytes = %(bytes)s, days = %(days)s
where run_no = %(run_no)s
