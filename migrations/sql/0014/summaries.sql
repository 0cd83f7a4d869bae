-- What was appended and no index by range knows yet. To have the server do it (`autosummarize`) takes a request for each range, of which it keeps 256
-- until it next comes round, once a minute: a busy day fills that in seconds, and each request beyond it is three lines in the server's log.

-- As the owner, whom alone the server allows it, and only for an index of ours that is still there. Returns how many ranges were summarized; null:
-- none can be now. Whoever vacuums the table does the same, and would give way to whoever waits. `first`: the first block of the table that may have
-- none, and a range that is not full yet is left; null: any may.
create function ledger.summarize_ranges(named regclass, first int8) returns int4
    language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as
$body$
declare
    range  int8;
    blocks int8;
    block  int8;
    made   int4 := 0;
begin
    select
        coalesce((select o.option_value::int8 from pg_options_to_table(c.reloptions) o where o.option_name = 'pages_per_range'), 128),
        pg_relation_size(i.indrelid) / current_setting('block_size')::int8
    into range, blocks
    from pg_class c
    join pg_am a on a.oid = c.relam and a.amname = 'brin'
    join pg_index i on i.indexrelid = c.oid
    join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('ledger', 'projection_a', 'projection_b')
    where c.oid = named;
    if not found then
        return null;
    end if;
    if first is null then
        return brin_summarize_new_values(named);
    end if;
    for block in select generate_series(first / range * range, blocks - range, range) loop
        made := made + brin_summarize_range(named, block);
    end loop;
    return made;
exception
    when lock_not_available then
        return null;
end
$body$;
revoke execute on function ledger.summarize_ranges(regclass, int8) from public;

-- As in 0011, with indexes that leave the server alone, the one by time as those of the views (`store.surface`), and without a vacuum for what was
-- inserted: nobody asks whether all of a page of events can be seen, and most days are dropped before they must be frozen. Deleted rows are vacuumed.
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
        execute format('create table ledger.%I (like ledger.events including defaults including storage) with (
            toast_tuple_target = 8160, autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1)', child);
        execute format('alter table ledger.%I add constraint %I check (day >= %L and day < %L)', child, child || '_day', one, one + 1);
        execute format('create unique index %I on ledger.%I (stream_no, seq)', child || '_position', child);
        execute format('create index %I on ledger.%I using brin (batch_no) with (pages_per_range = 16)', child || '_batch', child);
        execute format('create index %I on ledger.%I using brin (occurred_at) with (pages_per_range = 32)', child || '_time', child);
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
        execute format('alter table %s set (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1)', child);
    end loop;
end
$body$;
