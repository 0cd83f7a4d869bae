-- Which of the given sessions have a call of one of the given numbers.
select distinct c.session_no
from {slot}.model_calls c
where c.session_no = any(%(sessions)s) and c.model_call_id = any(%(numbers)s)
