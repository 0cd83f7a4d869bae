insert into {slot}.rollup_shares (session_no, level, block, share)
select n.session_no, n.level, n.block, n.share
from unnest(%(sessions)s::int8[], %(levels)s::int4[], %(blocks)s::int4[], %(shares)s::text[]) n (session_no, level, block, share)
on conflict (session_no, level, block) do update set share = excluded.share where rollup_shares.share <> excluded.share
