-- Requests alike in where they went and what became of them.
select n.domain, n.decision, n.method, n.path, n.status_code, n.conn_type, count(*) as requests, sum(n.bytes_received) as bytes_received
from turnledger.net_events n
where n.tenant = %(tenant)s and n.session_id = %(session_id)s
group by 1, 2, 3, 4, 5, 6
order by requests desc, 1, 2, 3, 4, 5, 6
limit 200
