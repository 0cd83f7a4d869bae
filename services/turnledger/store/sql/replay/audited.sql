insert into {slot}.findings (session_no, turn_no, source, "check", severity, count, rows)
values (%(session_no)s, null, 'audit', 'projection_differs_from_fold', 'error', %(count)s, %(rows)s)
