-- Everything that usage_hourly sums and that has an hour of these (as in prices/mark), with what a price is asked.
select
    p.provider, p.model, p.input_uncached_tokens, p.cache_read_tokens, p.cache_write_5m_tokens, p.cache_write_1h_tokens, p.cache_write_other_tokens,
    p.output_tokens, p.reasoning_tokens, p.total_input_tokens, (extract(epoch from p.hour_at) * 1000000)::int8 as hour_at, p.token_convention,
    p.one_request
from (
    select
        c.provider, c.model, c.input_uncached_tokens, c.cache_read_tokens, c.cache_write_5m_tokens, c.cache_write_1h_tokens,
        c.cache_write_other_tokens, c.output_tokens, c.reasoning_tokens, c.total_input_tokens, c.hour_at, c.token_convention, true as one_request
    from {slot}.model_calls c
    left join {slot}.call_overlay o on o.session_no = c.session_no and o.call_key = c.call_key
    where c.counts and c.kind is distinct from 'eval' and o.inherited is not true
    union all
    select
        provider, model, input_uncached_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, cache_write_other_tokens,
        output_tokens, reasoning_tokens, total_input_tokens, hour_at, token_convention, false
    from {slot}.usage_parts
    where kind is distinct from 'eval' and inherited_event is not true
) p
where case
    when p.hour_at is null then %(since)s::int8 is null
    else %(since)s::int8 is null or p.hour_at >= 'epoch'::timestamptz + make_interval(secs => %(since)s::int8 / 1000000)
end
