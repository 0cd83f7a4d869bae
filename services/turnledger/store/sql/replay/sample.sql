-- Sessions by chance: a share of those that have events, one at least.
select s.session_no, s.tenant, s.session_id
from ledger.sessions s
where not exists (select from ledger.vacuums v where v.session_no = s.session_no)
order by random()
limit greatest(1, ceil(%(rate)s::float8 * (select count(*) from ledger.sessions))::int8)
