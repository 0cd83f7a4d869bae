-- Why a letter stays dead, as the reader says now; where it does not say, as it was.
update ledger.dead_letters d
set tried_at = now(),
    reason = coalesce(u.reason, d.reason),
    field = case when u.reason is null then d.field else u.field end,
    detail = case when u.reason is null then d.detail else u.detail end,
    tenant = coalesce(u.tenant, d.tenant),
    session_id = coalesce(u.session_id, d.session_id)
from unnest(
    %(ids)s::int8[], %(reasons)s::text[], %(fields)s::text[], %(details)s::text[], %(tenants)s::text[], %(sessions)s::text[]
) as u (dead_no, reason, field, detail, tenant, session_id)
where d.dead_no = u.dead_no and d.outcome is null
