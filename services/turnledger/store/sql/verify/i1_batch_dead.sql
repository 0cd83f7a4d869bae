-- Each batch's dead letters are there. One of a row that Postgres refused names no batch: its event was accepted.
select b.topic, b.partition, batch_no, b.dead, coalesce(n.letters, 0) as letters
from ledger.ingest_batches b
full join (
    select d.batch_no, count(*) as letters from ledger.dead_letters d where d.batch_no is not null group by d.batch_no
) n using (batch_no)
where b.dead is distinct from coalesce(n.letters, 0)
order by batch_no
limit %(limit)s
