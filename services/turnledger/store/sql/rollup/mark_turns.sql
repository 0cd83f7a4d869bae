-- `turns` are arrays as text: those that it is about, null for all.
insert into ledger.marks (session_no, turns)
select n.session_no, n.turns::int4[]
from unnest(%(sessions)s::int8[], %(turns)s::text[]) n (session_no, turns)
