-- Stale buckets, oldest first; marks set later stay.
with taken as (
    delete from {slot}.hour_marks
    where id in (select id from {slot}.hour_marks order by id limit %(count)s)
    returning tenant, hour, provider, model
)
select distinct tenant, hour, provider, model from taken
