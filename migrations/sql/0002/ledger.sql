-- Dead letters that come again (contract 15), and the stop rule's memory.

-- How a letter ended when it was requeued; null while it is dead. `projected` is of a refused projection row alone: its event was
-- accepted long ago. The checks are not validated: they say nothing about rows that were never requeued.
alter table ledger.dead_letters
    add column outcome text,
    add column requeue_batch int8,                       -- of ledger.requeue_batches; null for `projected`
    add column fixed bool not null default false,        -- a corrected record took the place of the one that came
    add column requeued_by text,
    add column tried_at timestamptz;                     -- when it was last requeued and stayed dead
alter table ledger.dead_letters
    add constraint dead_letters_outcome check (outcome in ('accepted', 'duplicate', 'conflict', 'projected')) not valid,
    add constraint dead_letters_settled check ((outcome is null) = (requeued_at is null)) not valid;

-- A position has one letter of a record, and one of each session whose projection was refused there: a requeued record may be both.
alter table ledger.dead_letters drop constraint dead_letters_topic_partition_kafka_offset_key;
create unique index dead_letters_record on ledger.dead_letters (topic, partition, kafka_offset) where batch_no is not null;
create unique index dead_letters_refused on ledger.dead_letters (topic, partition, kafka_offset, tenant, session_id) where batch_no is null;

-- One row a partition and requeue: what became of letters that left the dead. Numbered from the sequence of ledger.ingest_batches, so that
-- events of both kinds stand in one order of commit. The letters stay counted as dead in the batch that read them, which nothing changes.
create table ledger.requeue_batches (
    batch_no      int8        not null primary key,
    topic         text        not null collate "C",
    partition     int4        not null,
    letters       int4        not null,
    accepted      int4        not null,
    duplicates    int4        not null,                  -- `unverified` ones included
    unverified    int4        not null default 0,
    conflicts     int4        not null,
    requeued_by   text        not null,
    committed_at  timestamptz not null default now(),
    check (letters = accepted + duplicates + conflicts)
);
create index requeue_batches_partition on ledger.requeue_batches (topic, partition);
create index dead_letters_requeued on ledger.dead_letters (requeue_batch) where requeue_batch is not null;

-- Where too large a share of dead letters stopped a partition, and who let it go on. Records before the last resumed place no longer count for
-- the rule, so that a worker that starts anew does not stop there again.
create table ledger.partition_stops (
    topic        text        not null collate "C",
    partition    int4        not null,
    at_offset    int8        not null,                   -- the first offset that was not read
    dead         int4        not null,                   -- dead letters among the last `records_window` records
    records_window int4      not null,
    share        float8      not null,                   -- that was allowed
    stopped_by   text,
    stopped_at   timestamptz not null default now(),
    resumed_by   text,
    resumed_at   timestamptz,
    resumed_why  text,
    primary key (topic, partition, at_offset),
    check ((resumed_at is null) = (resumed_by is null)),
    check ((resumed_at is null) = (resumed_why is null))
);
