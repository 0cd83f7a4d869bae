delete from {slot}.usage_hourly u
using (
    select k.tenant, 'epoch'::timestamptz + make_interval(secs => k.hour / 1000000) as hour, k.provider, k.model
    from unnest(%(tenants)s::text[], %(hours)s::int8[], %(providers)s::text[], %(models)s::text[]) k (tenant, hour, provider, model)
) b
where u.tenant = b.tenant and u.hour is not distinct from b.hour
  and ledger.text_hash(u.provider) = ledger.text_hash(b.provider) and ledger.text_hash(u.model) = ledger.text_hash(b.model)
