-- Let partitions go on from where dead letters stopped them. All of the topic's where none is named.
update ledger.partition_stops
set resumed_at = now(), resumed_by = %(by)s, resumed_why = %(why)s
where topic = %(topic)s
  and (%(partition)s::int4 is null or partition = %(partition)s)
  and resumed_at is null
returning partition, at_offset
