-- The batches of a partition that hold some of a range of offsets (the last one inclusive).
select b.batch_no, b.from_offset, b.to_offset, b.records, b.accepted, b.duplicates, b.unverified, b.conflicts, b.dead,
    coalesce(v.events, 0) as vacuumed
from ledger.ingest_batches b
left join ledger.vacuumed_batches v on v.batch_no = b.batch_no
where b.topic = %(topic)s and b.partition = %(partition)s and b.to_offset > %(first)s and b.from_offset <= %(last)s
order by b.from_offset
