-- Those that are dead: a requeue may have settled others.
select d.topic, d.partition, d.kafka_offset as position, d.reason, d.field, d.detail
from ledger.sessions s
join ledger.dead_letters d on d.tenant = s.tenant and d.session_id = s.session_id and d.outcome is null
where s.session_no = %(session_no)s
order by d.topic, d.partition, d.kafka_offset
