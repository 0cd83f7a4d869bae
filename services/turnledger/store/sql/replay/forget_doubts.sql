-- Whoever was folded again and was not compared since.
delete from ledger.rebuild_doubts where tables is null
