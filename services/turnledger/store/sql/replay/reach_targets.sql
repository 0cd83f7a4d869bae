-- What was followed beyond them meanwhile stays followed.
update ledger.projection_progress
set batch_no = greatest(batch_no, target), target = null
where generation = %(generation)s and target is not null
