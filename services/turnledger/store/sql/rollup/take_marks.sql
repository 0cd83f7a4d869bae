-- Marks of sessions whose locks are held. A visible mark means that its data are visible to the next statement; later marks stay (design 5,
-- step 2). None where readers were switched to another generation meanwhile: whoever rolls up that one takes them. A generation that is being built
-- hears of each session.
-- Of each the turns that it is about, by their numbers in this generation, null where it may be any of them; and for what the shares of a long
-- session were made, null where it has none.
with taken as (
    delete from ledger.marks m
    using turnledger.active a
    where m.session_no = any(%(sessions)s::int8[]) and 'projection_' || a.generation = '{slot}'
    returning m.session_no, m.turns, m.slot
),
heard as (
    insert into ledger.shadow_marks (session_no)
    select distinct t.session_no
    from taken t
    where exists (select from ledger.generations g where g.state = 'building')
)
select
    t.session_no,
    case when t.slot = '{slot}' or t.turns = '{}' then t.turns end as turns,
    (select h.share from {slot}.rollup_shares h where h.session_no = t.session_no and h.level = 0 and h.block = 0) as basis
from taken t
