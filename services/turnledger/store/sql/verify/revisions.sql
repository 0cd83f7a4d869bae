-- Turns of a session that are not of the revision of their record, or of none.
select t.turn_key, t.revision, r.revision
from {slot}.turns t
left join {slot}.turn_records r on r.session_no = t.session_no and r.turn_no = t.turn_no
where t.session_no = %(session_no)s and (t.revision < 1 or r.revision <> t.revision)
order by t.turn_no
