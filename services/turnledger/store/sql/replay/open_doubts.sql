select session_no from ledger.rebuild_doubts where tables is null order by session_no
