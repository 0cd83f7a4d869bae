-- Ends the recorded process alone: a process id may have been given to somebody else since.
select pg_terminate_backend(pid)
from pg_stat_activity
where pid = %(pid)s and backend_start = %(start)s and pid <> pg_backend_pid()
