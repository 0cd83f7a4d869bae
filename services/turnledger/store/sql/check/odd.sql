-- Of these sessions, those about which the doctor may have anything to say: no fewer than it has, so that the others need not be read.
select s.session_no
from unnest(%(sessions)s::int8[]) as s (session_no)
left join {slot}.sessions r on r.session_no = s.session_no
cross join lateral (
    select
        exists (select from {slot}.fs_events x where x.session_no = s.session_no) as files,
        exists (select from {slot}.net_events x where x.session_no = s.session_no) as requests,
        exists (select from {slot}.dns_events x where x.session_no = s.session_no)
            or exists (select from {slot}.audit_events x where x.session_no = s.session_no) as others
) w
where r.session_no is null
    or exists (select from {slot}.findings f where f.session_no = s.session_no)
    or exists (select from ledger.key_mismatches k where k.session_no = s.session_no)
    or (r.model_call_count > 0 and not w.requests and (w.files or w.others))
    or (r.total_tool_calls > 0 and not w.files and (w.requests or w.others))
    or (
        r.model_call_count > 0 and coalesce(r.total_tool_calls, 0) = 0
        and exists (select from {slot}.model_calls c where c.session_no = s.session_no and c.stop_reason like '%%tool%%')
    )
    or (r.usage_total > 0 and coalesce(r.cost_micro_usd, 0) = 0)
    or exists (select from {slot}.fs_events x where x.session_no = s.session_no and x.action = 'overflow')
    or exists (select from {slot}.security_rule_events x where x.session_no = s.session_no)
    or exists (
        select from ledger.streams st join ledger.events e on e.stream_no = st.stream_no
        where st.session_no = s.session_no and e.type = 'mcp.observed'
    )
