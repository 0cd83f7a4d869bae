-- The fence: locks the rows of the round in order where offset and epoch are what we think, and moves them. READ COMMITTED.
-- The batch number is taken after the row's lock, so its order is commit order per partition.
with expected as (
    select *
    from unnest(
        %(partitions)s::int4[], %(froms)s::int8[], %(tos)s::int8[], %(epochs)s::int8[],
        %(anchors)s::int8[], %(crcs)s::int8[], %(flushed)s::int8[]
    ) as e (partition, from_offset, to_offset, epoch, anchor_offset, anchor_crc, flushed_batch)
),
locked as materialized (
    select p.partition
    from ledger.ingest_progress p
    join expected e on e.partition = p.partition and p.next_offset = e.from_offset and p.owner_epoch = e.epoch
    where p.topic = %(topic)s
    order by p.partition
    for no key update of p
),
numbered as materialized (
    select e.*, case when e.to_offset > e.from_offset then nextval('ledger.ingest_batches_batch_no_seq') end as batch_no
    from locked l
    join expected e on e.partition = l.partition
    order by e.partition
)
update ledger.ingest_progress p
set next_offset = n.to_offset,
    anchor_offset = coalesce(n.anchor_offset, p.anchor_offset),
    anchor_crc = coalesce(n.anchor_crc, p.anchor_crc),
    flushed_batch = greatest(p.flushed_batch, coalesce(n.flushed_batch, n.batch_no)),
    backend_pid = %(pid)s,
    backend_start = %(start)s,
    updated_at = now()
from numbered n
where p.topic = %(topic)s and p.partition = n.partition
returning p.partition, n.batch_no, p.disturbed, ledger.today()
