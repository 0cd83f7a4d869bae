-- Tool calls by name, origin and what became of them.
select
    t.tool_name, t.origin, t.status, t.pairing, count(*) as calls, round(avg(t.duration_ms), 1) as average_ms
from turnledger.tool_calls t
where t.tenant = %(tenant)s and t.session_id = %(session_id)s
group by 1, 2, 3, 4
order by calls desc, 1, 2, 3, 4
limit 200
