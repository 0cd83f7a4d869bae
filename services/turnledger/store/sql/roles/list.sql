-- Who reads, writes or owns here. A role may be both; what it may do most is said.
with members as (
    select m.member as oid, g.rolname as kind
    from pg_catalog.pg_auth_members m
    join pg_catalog.pg_roles g on g.oid = m.roleid
    where g.rolname in ('turnledger_reader', 'turnledger_writer') and m.inherit_option
), named as (
    select oid, 2 as rank from members where kind = 'turnledger_writer'
    union all
    select oid, 1 from members where kind = 'turnledger_reader'
    union all
    select relowner, 3 from pg_catalog.pg_class where oid = 'ledger.sessions'::regclass
)
select
    r.rolname::text,
    (array['reader', 'worker', 'owner'])[max(n.rank)],
    max(n.rank) > 1 or exists (select from ledger.role_tenants t where t.role = r.rolname and t.tenant is null),
    coalesce((select array_agg(t.tenant order by t.tenant) from ledger.role_tenants t where t.role = r.rolname and t.tenant is not null), '{}'),
    r.rolcanlogin,
    (
        select split_part(c, '=', 2)
        from pg_catalog.pg_db_role_setting d, unnest(d.setconfig) c
        where d.setrole = r.oid and d.setdatabase = (select oid from pg_catalog.pg_database where datname = current_database())
          and c like 'statement\_timeout=%'
    ),
    r.rolconnlimit
from named n
join pg_catalog.pg_roles r on r.oid = n.oid
group by r.oid, r.rolname, r.rolcanlogin, r.rolconnlimit
order by r.rolname
