-- A visible mark means that its data are visible to the next statement; later marks stay (design 5, step 2). None where readers were switched
-- to another generation meanwhile: whoever rolls up that one takes them. A generation that is being built hears of each.
with taken as (
    delete from ledger.marks m
    using turnledger.active a
    where m.session_no = %(session_no)s and 'projection_' || a.generation = '{slot}'
    returning m.session_no
),
heard as (
    insert into ledger.shadow_marks (session_no)
    select %(session_no)s
    from ledger.generations g
    where g.state = 'building' and exists (select from taken)
)
select count(*) from taken
