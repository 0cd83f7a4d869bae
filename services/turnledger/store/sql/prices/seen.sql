-- Models that the ledger has seen, with what they cost so far: calls and contributions that count, by provider and model as events said them.
select
    p.provider, p.model, count(*)::int8 as calls, {slot}.fitting(sum(p.cost_micro_usd)) as cost_micro_usd,
    count(*) filter (where p.unpriced)::int8 as unpriced
from (
    select c.provider, c.model, o.cost_micro_usd, o.unpriced
    from {slot}.model_calls c
    left join {slot}.call_overlay o on o.session_no = c.session_no and o.call_key = c.call_key
    union all
    select u.provider, u.model, o.cost_micro_usd, o.unpriced
    from {slot}.usage_parts u
    left join {slot}.part_overlay o on o.session_no = u.session_no and o.part_key = u.part_key
) p
where p.model is not null
group by p.provider, p.model
order by calls desc, p.provider collate "C" nulls first, p.model collate "C"
