-- MCP exchanges whose method is none of the protocol's.
select o.payload_method as method, count(*) as observed
from (
    select ledger.as_jsonb(e.raw) -> 'payload' ->> 'method' as payload_method
    from ledger.streams st
    join ledger.events e on e.stream_no = st.stream_no
    where st.session_no = %(session_no)s and e.type = 'mcp.observed'
) o
where not o.payload_method = any(%(known)s)
group by 1
order by 2 desc, 1
limit 100
