-- One receipt per distinct losing hash (contract 3).
insert into ledger.conflicts (
    session_no, stream_no, seq, receipt_key, kept_sha256, lost_sha256, count, topic,
    kept_partition, kept_offset, first_partition, first_offset, last_partition, last_offset
)
values (
    %(session_no)s, %(stream_no)s, %(seq)s, %(receipt_key)s, %(kept_sha256)s, %(lost_sha256)s, %(count)s, %(topic)s,
    %(kept_partition)s, %(kept_offset)s, %(first_partition)s, %(first_offset)s, %(last_partition)s, %(last_offset)s
)
on conflict (stream_no, seq, lost_sha256) do update
    set count = conflicts.count + excluded.count,
        last_partition = excluded.last_partition,
        last_offset = excluded.last_offset,
        last_at = now()
