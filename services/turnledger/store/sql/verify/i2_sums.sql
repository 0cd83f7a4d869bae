-- Records read = accepted + duplicates + conflicts + dead, and offsets = records + holes, in every batch.
select b.topic, b.partition, b.batch_no, b.from_offset, b.to_offset, b.records, b.holes, b.accepted, b.duplicates, b.unverified,
    b.conflicts, b.dead, count(*) over () as faults
from ledger.ingest_batches b
where b.batch_no >= %(floor)s
    and (
        b.records <> b.accepted + b.duplicates + b.conflicts + b.dead
        or b.to_offset - b.from_offset <> b.records + b.holes
        or b.unverified > b.duplicates
        or least(b.records, b.holes, b.accepted, b.duplicates, b.unverified, b.conflicts, b.dead) < 0
    )
order by b.batch_no
limit %(limit)s
