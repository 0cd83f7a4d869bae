-- Sessions with marks, due or not, oldest mark first. Looks at the oldest `window` marks.
select h.session_no
from (
    select w.session_no, min(w.id) as first
    from (select id, session_no from ledger.marks order by id limit %(window)s) w
    group by w.session_no
) h
order by h.first
limit %(count)s
