-- Sessions of a generation that is being built that are rolled up now, oldest mark first: those that rest, and those that have not rested for long.
-- Who goes on moving would be rolled up for nothing, again and again. Looks at the oldest `window` marks.
select h.session_no
from (
    select w.session_no, min(w.id) as first, min(w.at) as since, max(w.at) as last
    from (select id, session_no, at from ledger.shadow_marks order by id limit %(window)s) w
    group by w.session_no
) h
where h.last <= clock_timestamp() - make_interval(secs => %(rests)s) or h.since <= clock_timestamp() - make_interval(secs => %(waits)s)
order by h.first
limit %(count)s
