-- Kept shares of long sessions: of some blocks, and all of the highest level.
select h.session_no, h.level, h.block, h.share
from unnest(%(sessions)s::int8[], %(levels)s::int4[], %(blocks)s::int4[]) n (session_no, level, block)
join {slot}.rollup_shares h on h.session_no = n.session_no and h.level = n.level and h.block = n.block
union all
select h.session_no, h.level, h.block, h.share
from {slot}.rollup_shares h
where h.session_no = any(%(every)s::int8[]) and h.level = %(highest)s
