-- Who may see what (design 4). Three roles, of the whole server, that nobody logs in with:
--   turnledger_reader  people's logins: the views of schema turnledger and nothing else
--   turnledger_writer  workers: every row, no table of their own
--   turnledger_views   owns the views, so that a view may do what this role may, which is: read, past row-level security never
-- Whoever runs the migrations owns the tables.
do $body$
declare
    one text;
begin
    foreach one in array array['turnledger_reader', 'turnledger_writer', 'turnledger_views'] loop
        if exists (select from pg_catalog.pg_roles where rolname = one) then
            continue;
        end if;
        begin
            execute format('create role %I nologin', one);
        exception
            when duplicate_object or unique_violation then null;  -- another database of this server made it meanwhile
            when insufficient_privilege then
                raise exception 'the role % is missing and % may not create it: as an administrator, '
                    '"create role turnledger_reader nologin; create role turnledger_writer nologin; create role turnledger_views nologin; '
                    'grant turnledger_views to %"', one, current_user, quote_ident(current_user);
        end;
    end loop;
    -- To give the views to their owner one must be a member of it; a superuser is one of everything.
    if not pg_has_role(current_user, 'turnledger_views', 'set') then
        execute format('grant turnledger_views to %I', current_user);
    end if;
end
$body$;

-- Which role sees which tenant; a null tenant stands for all of them. What a role has, its members have.
create table ledger.role_tenants (
    role        name        not null,
    tenant      text        collate "C",
    granted_at  timestamptz not null default now(),
    granted_by  name        not null default current_user,
    unique nulls not distinct (role, tenant)
);
insert into ledger.role_tenants (role, tenant) values (current_user, null), ('turnledger_writer', null);

-- The tenants of the role that asks. `current_user` decides, which a reader cannot set; a superuser is a member of every role.
create view ledger.my_tenants as
select g.tenant
from ledger.role_tenants g
join pg_catalog.pg_roles r on r.rolname = g.role
where pg_catalog.pg_has_role(r.oid, 'usage');

-- Partitions are made by workers, who own nothing: as the owner, and with names that mean one thing only. As in 0001, and with an index by time.
create or replace function ledger.make_event_partitions(first_day date, days int4) returns int4
    language plpgsql security definer set search_path = pg_catalog, pg_temp as
$body$
declare
    one    date;
    child  text;
    made   int4 := 0;
begin
    perform pg_advisory_xact_lock(hashtextextended('turnledger.make_event_partitions', 0));
    for one in select first_day + n from generate_series(0, days - 1) as n loop
        child := 'events_' || to_char(one, 'YYYYMMDD');
        if exists (
            select from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'ledger.events'::regclass and c.relname = child
        ) then
            continue;
        end if;
        execute format('create table ledger.%I (like ledger.events including defaults including storage) with (toast_tuple_target = 8160)', child);
        execute format('alter table ledger.%I add constraint %I check (day >= %L and day < %L)', child, child || '_day', one, one + 1);
        execute format('create unique index %I on ledger.%I (stream_no, seq)', child || '_position', child);
        execute format('create index %I on ledger.%I using brin (batch_no) with (pages_per_range = 16, autosummarize = on)', child || '_batch', child);
        execute format('create index %I on ledger.%I using brin (occurred_at) with (autosummarize = on)', child || '_time', child);
        execute format('alter table ledger.events attach partition ledger.%I for values from (%L) to (%L)', child, one, one + 1);
        execute format('alter table ledger.%I drop constraint %I', child, child || '_day');
        made := made + 1;
    end loop;
    return made;
end
$body$;
revoke execute on function ledger.make_event_partitions(date, int4) from public;
