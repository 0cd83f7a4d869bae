-- Every row of usage_hourly is the sum of its parts; both sides of what differs. `pending`: marked, and so to be set by a rollup worker.
with summed as (
    select p.tenant, p.hour, p.provider, p.model,
        case when sum(p.calls) <= 9223372036854775807 then sum(p.calls)::int8 end as calls,
        case when sum(p.input_uncached_tokens) <= 9223372036854775807 then sum(p.input_uncached_tokens)::int8 end as input_uncached_tokens,
        case when sum(p.cache_read_tokens) <= 9223372036854775807 then sum(p.cache_read_tokens)::int8 end as cache_read_tokens,
        case when sum(p.cache_write_5m_tokens) <= 9223372036854775807 then sum(p.cache_write_5m_tokens)::int8 end as cache_write_5m_tokens,
        case when sum(p.cache_write_1h_tokens) <= 9223372036854775807 then sum(p.cache_write_1h_tokens)::int8 end as cache_write_1h_tokens,
        case when sum(p.cache_write_other_tokens) <= 9223372036854775807 then sum(p.cache_write_other_tokens)::int8 end as cache_write_other_tokens,
        case when sum(p.output_tokens) <= 9223372036854775807 then sum(p.output_tokens)::int8 end as output_tokens,
        case when sum(p.reasoning_tokens) <= 9223372036854775807 then sum(p.reasoning_tokens)::int8 end as reasoning_tokens,
        case when sum(p.total_input_tokens) <= 9223372036854775807 then sum(p.total_input_tokens)::int8 end as total_input_tokens,
        case when sum(p.usage_reported) <= 9223372036854775807 then sum(p.usage_reported)::int8 end as usage_reported,
        case when sum(p.usage_total) <= 9223372036854775807 then sum(p.usage_total)::int8 end as usage_total,
        case when sum(p.cost_micro_usd) <= 9223372036854775807 then sum(p.cost_micro_usd)::int8 end as cost_micro_usd,
        case when sum(p.unpriced_calls) <= 9223372036854775807 then sum(p.unpriced_calls)::int8 end as unpriced_calls,
        count(distinct p.session_no) as sessions
    from {slot}.hour_parts p
    group by p.tenant, p.hour, p.provider, p.model
),
stored as (
    select h.tenant, h.hour, h.provider, h.model,
        h.calls, h.input_uncached_tokens, h.cache_read_tokens, h.cache_write_5m_tokens, h.cache_write_1h_tokens,
        h.cache_write_other_tokens, h.output_tokens, h.reasoning_tokens, h.total_input_tokens, h.usage_reported, h.usage_total, h.cost_micro_usd, h.unpriced_calls,
        h.sessions
    from {slot}.usage_hourly h
),
differing as (
    (select 'computed' as side, x.* from (select * from summed except all select * from stored) x)
    union all
    (select 'stored' as side, x.* from (select * from stored except all select * from summed) x)
)
select d.*, count(*) over () as faults,
    exists (
        select
        from {slot}.hour_marks m
        where m.tenant = d.tenant
            and m.hour is not distinct from d.hour
            and m.provider is not distinct from d.provider
            and m.model is not distinct from d.model
    ) as pending
from differing d
order by pending, d.tenant, d.hour, d.provider, d.model, d.side
limit %(limit)s
