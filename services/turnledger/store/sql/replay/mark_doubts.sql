-- Whoever was folded again and has still to be compared.
insert into ledger.shadow_marks (session_no)
select d.session_no
from ledger.rebuild_doubts d
where d.tables is null and not exists (select from ledger.shadow_marks m where m.session_no = d.session_no)
