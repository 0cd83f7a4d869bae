insert into {slot}.rollup_shares (session_no, level, block, share)
select %(session_no)s, n.level, n.block, n.share
from unnest(%(levels)s::int4[], %(blocks)s::int4[], %(shares)s::text[]) n (level, block, share)
on conflict (session_no, level, block) do update set share = excluded.share where rollup_shares.share <> excluded.share
