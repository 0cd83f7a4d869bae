-- Requests and model calls beside which no security rule was evaluated, in a session that has rules evaluated at all.
select n.event_id, n.domain, n.occurred_at
from {slot}.net_events n
where n.session_no = %(session_no)s
    and n.event_id is not null
    and exists (select from {slot}.security_rule_events r where r.session_no = %(session_no)s)
    and not exists (
        select from {slot}.security_rule_events r where r.session_no = %(session_no)s and r.for_event_id = n.event_id
    )
order by n.occurred_at nulls last, n.event_id
limit 1000
