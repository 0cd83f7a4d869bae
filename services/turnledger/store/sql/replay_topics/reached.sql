update ledger.topic_replay_partitions
set next_offset = %(next_offset)s,
    records = records + %(records)s,
    known = known + %(known)s,
    dead = dead + %(dead)s,
    requeued = requeued + %(requeued)s,
    filled = filled + %(filled)s,
    unverified = unverified + %(unverified)s,
    contradictions = contradictions + %(contradictions)s,
    unaccounted = unaccounted + %(unaccounted)s,
    others = others + %(others)s
where replay_no = %(replay_no)s and partition = %(partition)s
