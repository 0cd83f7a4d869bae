-- How each model call of a session came out.
select c.status, c.output_tokens, c.latency_ms
from {slot}.model_calls c
where c.session_no = %(session_no)s
