-- `turns` are arrays as text: those that it is about in this generation, null for all.
insert into ledger.marks (session_no, turns, slot)
select n.session_no, n.turns::int4[], '{slot}'
from unnest(%(sessions)s::int8[], %(turns)s::text[]) n (session_no, turns)
