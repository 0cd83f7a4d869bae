-- The batches of a partition that hold some of a range of offsets (the last one inclusive).
select b.batch_no, b.from_offset, b.to_offset, b.records, b.accepted, b.duplicates, b.unverified, b.conflicts, b.dead
from ledger.ingest_batches b
where b.topic = %(topic)s and b.partition = %(partition)s and b.to_offset > %(first)s and b.from_offset <= %(last)s
order by b.from_offset
