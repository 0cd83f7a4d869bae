select id, session_no from ledger.filled
