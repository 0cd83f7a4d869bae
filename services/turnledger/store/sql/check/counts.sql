-- Rows of one session in each table of contract 11, and what its own checks ask.
select
    (select count(*) from {slot}.turns x where x.session_no = %(session_no)s) as turns,
    (select count(*) from {slot}.model_calls x where x.session_no = %(session_no)s) as model_calls,
    (select count(*) from {slot}.model_items x where x.session_no = %(session_no)s) as model_items,
    (select count(*) from {slot}.tool_calls x where x.session_no = %(session_no)s) as tool_calls,
    (select count(*) from {slot}.tool_responses x where x.session_no = %(session_no)s) as tool_responses,
    (select count(*) from {slot}.net_events x where x.session_no = %(session_no)s) as net_events,
    (select count(*) from {slot}.dns_events x where x.session_no = %(session_no)s) as dns_events,
    (select count(*) from {slot}.fs_events x where x.session_no = %(session_no)s) as fs_events,
    (select count(*) from {slot}.exec_events x where x.session_no = %(session_no)s) as exec_events,
    (select count(*) from {slot}.audit_events x where x.session_no = %(session_no)s) as audit_events,
    (select count(*) from {slot}.credential_events x where x.session_no = %(session_no)s) as credential_events,
    (select count(*) from {slot}.security_rule_events x where x.session_no = %(session_no)s) as security_rule_events,
    (select count(*) from {slot}.security_decisions x where x.session_no = %(session_no)s) as security_decisions,
    (select count(*) from {slot}.security_asks x where x.session_no = %(session_no)s) as security_asks,
    (select count(*) from {slot}.event_bodies x where x.session_no = %(session_no)s) as event_bodies
