-- Is the session not due (yet, or any more, since another worker has just done it)?
select coalesce((select due_at > clock_timestamp() from {slot}.rollup_due where session_no = %(session_no)s), false)
