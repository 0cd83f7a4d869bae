-- Which of these sessions are vacuumed.
select distinct session_no from ledger.vacuums where session_no = any(%(sessions)s)
