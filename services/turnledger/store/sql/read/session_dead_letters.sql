-- Those that are dead; `turnledger dead list --all` shows those that a requeue settled as well.
select *
from turnledger.dead_letters
where tenant = %(tenant)s and session_id = %(session_id)s and outcome is null
order by topic, partition, position
