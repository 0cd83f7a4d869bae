-- The declarations of a vacuumed session that went with its other events.
select raw, running from ledger.kept_declarations where session_no = %(session_no)s order by stream_no, seq
