-- Sessions whose events are there, as they were last rolled up, with when something of them came last (by the database's clock).
select s.session_no, s.tenant, s.session_id, r.status, coalesce(a.at, s.first_seen) as last_arrival,
    coalesce(r.total_input_tokens, 0) > 0 or coalesce(r.total_tool_calls, 0) > 0 or coalesce(r.model_call_count, 0) > 0 as content,
    coalesce(r.total_requests, 0) = 0 as silent
from ledger.sessions s
join {slot}.sessions r on r.session_no = s.session_no
left join lateral (select max(st.updated_at) as at from ledger.streams st where st.session_no = s.session_no) a on true
where (%(tenant)s::text is null or s.tenant = %(tenant)s)
    and not exists (select from ledger.vacuums v where v.session_no = s.session_no)
order by last_arrival, s.session_no
