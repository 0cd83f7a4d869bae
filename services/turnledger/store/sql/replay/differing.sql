-- Sessions that differ, and in what. Ordered, so that their digest is one.
select s.session_no, s.tenant, s.session_id, d.tables, d.difference
from ledger.rebuild_doubts d
join ledger.sessions s on s.session_no = d.session_no
where d.tables is not null
order by s.tenant collate "C", s.session_id collate "C"
