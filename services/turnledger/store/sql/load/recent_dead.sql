with recent as (
    select records, dead, sum(records) over (order by from_offset desc) - records as later
    from (
        select from_offset, records, dead from ledger.ingest_batches
        where topic = %(topic)s and partition = %(partition)s
        order by from_offset desc
        limit %(window)s
    ) b
)
select coalesce(sum(records), 0), coalesce(sum(dead), 0) from recent where later < %(window)s
