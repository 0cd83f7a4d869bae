-- What prices are made of: inputs of the projection beside the events (contract 9). Rows are added, never changed.

-- Price lists as they came with a package, so that what a version said is known after the package has gone on.
create table ledger.price_lists (
    source     text        not null primary key collate "C",  -- a package and its version
    content    bytea       not null,                          -- compressed JSON (pricing/kept.py)
    stored_at  timestamptz not null default clock_timestamp()
);

-- Versions of the catalogue: a packaged list, and a list of one's own above it.
create table ledger.price_catalogues (
    version       int4        not null primary key check (version > 0),
    published_at  timestamptz,                                -- null: it has always held, as version 1 does
    source        text        not null collate "C" references ledger.price_lists,
    own           jsonb       not null,                       -- the document that was given; prices are decimals as text
    "by"          text        not null,
    why           text,
    at            timestamptz not null default clock_timestamp()
);

-- Named reprice runs: the calls of these hours cost what `version` says. They count in the order of their numbers.
create table ledger.reprices (
    run_no    int4        not null primary key check (run_no > 0),
    name      text        not null unique collate "C",
    version   int4        not null references ledger.price_catalogues,
    since     timestamptz,                                    -- first hour; null: from the beginning, calls without an hour too
    until     timestamptz not null,                           -- when it was run: later hours have a price of their own time
    sessions  int8        not null,                           -- with calls of these hours, as it was run
    "by"      text        not null,
    why       text
);
