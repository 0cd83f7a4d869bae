-- Sessions with due marks, oldest mark first (design 5, step 1). Looks at the oldest `window` marks: a null window is all of them.
select h.session_no
from (
    select w.session_no, min(w.id) as first
    from (select id, session_no from ledger.marks order by id limit %(window)s) w
    group by w.session_no
) h
left join {slot}.rollup_due d on d.session_no = h.session_no
where d.due_at is null or d.due_at <= clock_timestamp()
order by h.first
limit %(count)s
