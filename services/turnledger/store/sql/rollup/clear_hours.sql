delete from {slot}.usage_hourly u
using unnest(%(tenants)s::text[], %(hours)s::timestamptz[], %(providers)s::text[], %(models)s::text[]) b (tenant, hour, provider, model)
where u.tenant = b.tenant and u.hour is not distinct from b.hour
  and ledger.text_hash(u.provider) = ledger.text_hash(b.provider) and ledger.text_hash(u.model) = ledger.text_hash(b.model)
