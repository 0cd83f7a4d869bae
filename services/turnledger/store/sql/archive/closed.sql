-- The first day that is not closed: today, yesterday for the first minutes of a day, and the day on which the oldest transaction of this database began.
select least(
    ((now() - make_interval(secs => %(grace)s)) at time zone 'UTC')::date,
    (
        select min((a.xact_start at time zone 'UTC')::date)
        from pg_stat_activity a
        where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null
    )
)
