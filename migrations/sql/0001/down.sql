-- Schema ledger itself stays: it holds the version table.
drop table ledger.event_bodies, ledger.marks, ledger.key_mismatches, ledger.dead_letters, ledger.conflicts, ledger.gaps, ledger.events, ledger.receipts,
    ledger.stream_days, ledger.stream_chunks, ledger.streams, ledger.sessions, ledger.ingest_batches, ledger.ingest_progress;
drop function ledger.make_event_partitions, ledger.today, ledger.as_jsonb, ledger.text_hash;
