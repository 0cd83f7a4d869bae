-- Set = the sum of the parts that there are now (design 5, step 6). A sum that eight bytes cannot hold is null (fold.rollup.add).
insert into {slot}.usage_hourly (
    tenant, hour, provider, model, calls,
    input_uncached_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, cache_write_other_tokens,
    output_tokens, reasoning_tokens, total_input_tokens, usage_reported, usage_total, cost_micro_usd, unpriced_calls, sessions
)
select
    p.tenant, p.hour, p.provider, p.model, {slot}.fitting(sum(p.calls)),
    {slot}.fitting(sum(p.input_uncached_tokens)), {slot}.fitting(sum(p.cache_read_tokens)),
    {slot}.fitting(sum(p.cache_write_5m_tokens)), {slot}.fitting(sum(p.cache_write_1h_tokens)),
    {slot}.fitting(sum(p.cache_write_other_tokens)), {slot}.fitting(sum(p.output_tokens)),
    {slot}.fitting(sum(p.reasoning_tokens)), {slot}.fitting(sum(p.total_input_tokens)),
    {slot}.fitting(sum(p.usage_reported)), {slot}.fitting(sum(p.usage_total)),
    {slot}.fitting(sum(p.cost_micro_usd)), {slot}.fitting(sum(p.unpriced_calls)),
    count(distinct p.session_no)
from (
    select k.tenant, 'epoch'::timestamptz + make_interval(secs => k.hour / 1000000) as hour, k.provider, k.model
    from unnest(%(tenants)s::text[], %(hours)s::int8[], %(providers)s::text[], %(models)s::text[]) k (tenant, hour, provider, model)
) b
join {slot}.hour_parts p
    on p.tenant = b.tenant and p.provider = b.provider and p.model = b.model
   and (p.hour = b.hour or (p.hour is null and b.hour is null))
group by p.tenant, p.hour, p.provider, p.model
