-- Lets go of a session's events: how many of each batch, of each stream and of each day they were.
with gone as (
    delete from ledger.events e
    using ledger.streams st
    where st.session_no = %(session_no)s and e.stream_no = st.stream_no and e.day between %(first_day)s and %(last_day)s
    returning e.batch_no, e.stream_no, e.day, octet_length(e.raw) as bytes
),
batches as (
    insert into ledger.vacuumed_batches (batch_no, events)
    select batch_no, count(*) from gone group by batch_no order by batch_no
    on conflict (batch_no) do update set events = vacuumed_batches.events + excluded.events
    returning 1
),
streams as (
    update ledger.streams st
    set vacuumed = st.vacuumed + n.events
    from (select stream_no, count(*) as events from gone group by stream_no) n
    where st.stream_no = n.stream_no
    returning 1
)
select coalesce(sum(d.events), 0)::int8, coalesce(sum(d.bytes), 0)::int8, coalesce(jsonb_object_agg(d.day, d.events), '{}'::jsonb),
    (select count(*) from batches), (select count(*) from streams)
from (select day, count(*) as events, sum(bytes) as bytes from gone group by day) d
