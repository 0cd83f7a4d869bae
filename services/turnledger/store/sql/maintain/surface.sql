-- Owners, barriers and grants of the surface, set where they are not what they must be. After every run of the migrations: a view made anew
-- belongs to whoever made it, who sees every tenant, and `create or replace view` takes a barrier away.
do $body$
declare
    one    record;
    schema text;
begin
    if to_regclass('ledger.role_tenants') is null then
        return;  -- before revision 0011
    end if;

    foreach schema in array array['ledger', 'projection_a', 'projection_b', 'turnledger'] loop
        execute format('grant usage on schema %I to turnledger_writer, turnledger_views', schema);
        execute format('grant select on all tables in schema %I to turnledger_views', schema);
        if schema = 'turnledger' then
            execute format('grant select on all tables in schema %I to turnledger_writer', schema);
        else
            execute format('grant select, insert, update, delete on all tables in schema %I to turnledger_writer', schema);
            execute format('grant usage on all sequences in schema %I to turnledger_writer', schema);
        end if;
    end loop;
    -- Partitions of events are made by a function of the owner's, day by day.
    alter default privileges in schema ledger grant select, insert, update, delete on tables to turnledger_writer;
    grant execute on function ledger.make_event_partitions(date, int4) to turnledger_writer;
    if to_regproc('ledger.summarize_ranges') is not null then  -- since revision 0014
        grant execute on function ledger.summarize_ranges(regclass, int8) to turnledger_writer;
    end if;
    -- Statistics of what grows faster than autovacuum comes round (`store.maintain`). Older servers know no such right: there the owner's autovacuum is all.
    if current_setting('server_version_num')::int4 >= 170000 then
        foreach schema in array array['ledger', 'projection_a', 'projection_b'] loop
            execute format('grant maintain on all tables in schema %I to turnledger_writer', schema);
        end loop;
        alter default privileges in schema ledger grant maintain on tables to turnledger_writer;
    end if;
    revoke insert, update, delete on ledger.schema_version, ledger.role_tenants from turnledger_writer;
    -- The projections are theirs to throw away; the ledger is not.
    grant truncate on all tables in schema projection_a to turnledger_writer;
    grant truncate on all tables in schema projection_b to turnledger_writer;
    grant usage on schema turnledger to turnledger_reader;
    grant create on schema turnledger to turnledger_views;

    -- What does not reach its rows through a table that knows tenants is of the whole fleet: for who sees all of it.
    for one in
        select c.relname as name, pg_get_viewdef(c.oid) as body
        from pg_class c
        where c.relnamespace = 'turnledger'::regnamespace and c.relkind = 'v'
          and not exists (
              select
              from pg_rewrite w
              join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
              join pg_class t on t.oid = d.refobjid and t.oid <> c.oid
              where w.ev_class = c.oid
                and (
                    t.relrowsecurity or t.oid = 'ledger.my_tenants'::regclass
                    or (t.relkind = 'v' and t.relnamespace = 'turnledger'::regnamespace)
                )
          )
    loop
        execute format(
            'create or replace view turnledger.%I as select shown.* from (%s) shown '
            'where (select exists (select from ledger.my_tenants m where m.tenant is null))', one.name, rtrim(one.body, E'; \n')
        );
    end loop;

    for one in
        select c.oid, c.relname as name, pg_get_viewdef(c.oid) as body, c.relowner = 'turnledger_views'::regrole as owned,
            coalesce(c.reloptions::text[] @> array['security_barrier=true'], false) as barred
        from pg_class c
        where c.relnamespace = 'turnledger'::regnamespace and c.relkind = 'v'
    loop
        -- The planner takes a bare UNION ALL apart before it looks at the barrier, and would then ask a reader's function about every row.
        if one.body like '%UNION ALL%' and one.body not like '%) shown%' then
            execute format(
                'create or replace view turnledger.%I with (security_barrier = true) as select shown.* from (%s) shown', one.name, rtrim(one.body, E'; \n')
            );
        elsif not one.barred then
            execute format('alter view turnledger.%I set (security_barrier = true)', one.name);
        end if;
        if not one.owned then
            execute format('alter view turnledger.%I owner to turnledger_views', one.name);
        end if;
        execute format('grant select on turnledger.%I to turnledger_reader, turnledger_writer', one.name);
    end loop;
end
$body$
