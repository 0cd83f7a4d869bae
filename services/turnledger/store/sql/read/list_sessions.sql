-- The latest sessions that a person asked for, as the rollup worker set them. What is chosen is chosen before it is counted.
select s.*, coalesce(m.calls, 0)::int8 as total_mcp_calls
from turnledger.sessions s
left join lateral (
    select sum(u.call_count) as calls
    from turnledger.mcp_usage u
    where u.tenant = s.tenant and u.session_id = s.session_id
) m on true
where (%(tenant)s::text is null or s.tenant = %(tenant)s)
    and (%(status)s::text is null or s.status = %(status)s)
    and (%(agent)s::text is null or s.agent = %(agent)s)
    and (%(since)s::int8 is null or s.last_activity_at >= timestamptz 'epoch' + %(since)s::int8 * interval '1 microsecond')
    and (%(min_cost)s::numeric is null or s.cost_micro_usd >= %(min_cost)s::numeric)
    and (not %(with_model)s::bool or coalesce(s.total_input_tokens, 0) + coalesce(s.output_tokens, 0) > 0)
    and (not %(with_net)s::bool or s.total_requests > 0)
    and (not %(with_tools)s::bool or s.total_tool_calls > 0)
    and (not %(with_mcp)s::bool or m.calls > 0)
    and (not %(with_detail)s::bool or s.detail = 'full')
    and (%(vacuumed_too)s::bool or s.detail is distinct from 'vacuumed')
order by s.last_activity_at desc nulls last, s.tenant, s.session_id
limit %(count)s
