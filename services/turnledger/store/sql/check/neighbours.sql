-- The last event before each hole of a stream, and the first behind it.
select a.place, b.raw as before, n.raw as after
from unnest(%(places)s::int4[], %(producers)s::text[], %(epochs)s::int8[], %(streams)s::text[], %(firsts)s::int8[], %(lasts)s::int8[])
    as a (place, producer, epoch, stream, first, last)
join ledger.streams st
    on st.session_no = %(session_no)s and st.producer = a.producer and st.epoch = a.epoch and st.stream = a.stream
left join lateral (
    select e.raw from ledger.events e
    where e.stream_no = st.stream_no and e.seq >= 0 and e.seq < a.first
    order by e.seq desc limit 1
) b on true
left join lateral (
    select e.raw from ledger.events e
    where e.stream_no = st.stream_no and e.seq > a.last
    order by e.seq limit 1
) n on true
