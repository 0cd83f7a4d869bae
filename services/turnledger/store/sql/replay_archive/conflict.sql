-- A contradiction that this ledger never saw, told by an archive: counted no time here.
insert into ledger.conflicts (
    session_no, stream_no, seq, receipt_key, kept_sha256, lost_sha256, count, topic, first_partition, first_offset, last_partition, last_offset
)
values (
    %(session_no)s, %(stream_no)s, %(seq)s, %(receipt_key)s, %(kept)s, %(lost)s, 0, %(topic)s, 0, %(position)s, 0, %(position)s
)
on conflict (stream_no, seq, lost_sha256) do nothing
