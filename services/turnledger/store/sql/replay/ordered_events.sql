-- Every accepted event of a session, about in the order of contract 5: an event that comes behind its place costs a second reading, no more.
select st.session_no, e.stream_no, e.seq, e.kafka_offset, e.batch_no, e.raw
from ledger.streams st
join ledger.events e on e.stream_no = st.stream_no
where st.session_no = %(session_no)s
order by
    case
        when e.seq < 0 then e.occurred_at
        else coalesce(
            max(e.occurred_at) filter (where e.seq >= 0) over (partition by st.producer, st.stream order by st.epoch, e.seq),
            min(e.occurred_at) filter (where e.seq >= 0) over (partition by st.producer, st.stream)
        )
    end nulls last,
    e.seq < 0, st.producer, st.stream, st.epoch, abs(e.seq)
