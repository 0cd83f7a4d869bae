-- The places of a session's events in the order of contract 5: keys alone, so that what is sorted stays small. `fold.order` says the same of
-- events in memory, and a test compares both.
with found as (
    select
        e.stream_no,
        e.seq,
        e.day,
        e.type,
        e.occurred_at,
        st.producer,
        st.stream,
        st.epoch,
        case when e.seq < 0 then ledger.as_jsonb(e.raw) ->> 'receipt_key' end as receipt_key
    from ledger.streams st
    join ledger.events e on e.stream_no = st.stream_no
    where st.session_no = %(session_no)s
      and st.stream_no <> all (%(left_out)s)
    -- `offset 0`: the bytes of the events are not carried through the sorts.
    offset 0
), lanes as (
    select
        f.*,
        -- The greatest time so far in its (producer, stream), carried over epochs.
        case
            when f.seq >= 0
                then max(f.occurred_at) over (partition by f.producer, f.stream, f.seq < 0 order by f.epoch, f.seq)
        end as latest
    from found f
), timed as (
    select
        l.*,
        case
            when l.seq < 0 then l.occurred_at
            -- It never falls, so its least is the first known time: that of everything before it.
            else coalesce(l.latest, min(l.latest) over (partition by l.producer, l.stream, l.seq < 0))
        end as running
    from lanes l
)
select t.stream_no, t.seq, t.day, t.running
from timed t
where %(types)s::text[] is null or t.type = any (%(types)s::text[])
order by t.running nulls last, t.seq < 0, t.receipt_key collate "C", t.producer, t.stream, t.epoch, t.seq
