-- All sessions in pieces of about so many events. `folded` of them anew (null: all), the rest is carried over, as is what has no events any more.
insert into ledger.rebuild_chunks (rebuild_no, chunk_no, kind, sessions, events)
select %(rebuild_no)s, %(after)s + row_number() over (order by c.kind desc, c.piece), c.kind, c.sessions, c.events
from (
    select w.kind, w.piece, array_agg(w.session_no order by w.session_no) as sessions, sum(w.events)::int8 as events
    from (
        select n.session_no, n.kind, n.events,
            (sum(n.events + %(session_weight)s) over (partition by n.kind order by n.session_no) / %(piece_events)s)::int8 as piece
        from (
            select s.session_no,
                case
                    when (%(tenant)s::text is null or s.tenant = %(tenant)s)
                        and (%(folded)s::int8[] is null or s.session_no = any(%(folded)s))
                    then %(kind)s
                    else 'carry'
                end as kind,
                coalesce((
                    select sum(greatest(st.hi + 1 - st.holes, 0) + st.receipts) from ledger.streams st where st.session_no = s.session_no
                ), 0)::int8 as events
            from ledger.sessions s
            where %(among)s::int8[] is null or s.session_no = any(%(among)s)
        ) n
    ) w
    group by w.kind, w.piece
) c
