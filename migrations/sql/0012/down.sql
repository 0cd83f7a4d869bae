drop table
    ledger.audits, ledger.filled, ledger.switches, ledger.shadow_marks, ledger.rebuild_doubts, ledger.rebuild_chunks, ledger.rebuilds,
    ledger.projection_progress, ledger.generations;
