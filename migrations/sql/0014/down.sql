-- Back to 0013.
drop function ledger.summarize_ranges(regclass, int8);

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

do $body$
declare
    child regclass;
begin
    for child in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'ledger.events'::regclass loop
        execute format('alter table %s reset (autovacuum_vacuum_insert_threshold, toast.autovacuum_vacuum_insert_threshold)', child);
    end loop;
end
$body$;
