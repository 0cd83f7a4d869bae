-- Once: a letter that is settled stays so.
update ledger.dead_letters d
set outcome = u.outcome,
    requeue_batch = u.batch_no,
    requeued_at = now(),
    requeued_by = %(by)s,
    fixed = %(fixed)s,
    tenant = coalesce(d.tenant, u.tenant),
    session_id = coalesce(d.session_id, u.session_id)
from unnest(%(ids)s::int8[], %(outcomes)s::text[], %(batches)s::int8[], %(tenants)s::text[], %(sessions)s::text[])
    as u (dead_no, outcome, batch_no, tenant, session_id)
where d.dead_no = u.dead_no and d.outcome is null
