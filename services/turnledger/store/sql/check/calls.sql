-- Model calls alike in what decides whether their figures can be known.
select
    c.provider, c.model, c.status, c.status_code, c.stop_reason, c.error_class, c.inherited,
    c.total_input_tokens is not null or c.output_tokens is not null as reported,
    count(*) as calls
from turnledger.model_calls c
where c.tenant = %(tenant)s and c.session_id = %(session_id)s
group by 1, 2, 3, 4, 5, 6, 7, 8
order by calls desc, 1, 2, 3, 4, 5, 6, 7, 8
limit 200
