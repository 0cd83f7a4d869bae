with chunks as (
    delete from ledger.rebuild_chunks
), doubts as (
    delete from ledger.rebuild_doubts
), filled as (
    delete from ledger.filled
)
delete from ledger.shadow_marks
