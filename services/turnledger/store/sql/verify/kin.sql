-- Sessions and those that they say they come from.
select f.session_no, p.session_no as other
from {slot}.session_facts f
join ledger.sessions s on s.session_no = f.session_no
join ledger.sessions p
    on p.tenant = s.tenant and p.session_id in (f.parent_session_id, f.fork_parent_session_id) and p.session_no <> f.session_no
