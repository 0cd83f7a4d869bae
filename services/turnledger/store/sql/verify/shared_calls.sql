-- Sessions of one tenant that may hold the same call: each with the least session that shares a message id with it.
select distinct g.session_no, g.other
from (
    select c.session_no, min(c.session_no) over (partition by s.tenant, c.message_id) as other
    from {slot}.model_calls c
    join ledger.sessions s on s.session_no = c.session_no
    where c.message_id is not null
) g
where g.session_no <> g.other
