-- In a transaction that is rolled back: as if nothing from there on had been applied.
update ledger.ingest_progress set next_offset = %(next_offset)s where topic = %(topic)s and partition = 0
