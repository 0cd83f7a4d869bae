-- The surface that people query: views alone, and the pointer that says which generation they show (design 6).

create schema turnledger;

create table turnledger.active (
    only_row     bool        not null primary key default true check (only_row),
    generation   text        not null check (generation in ('a', 'b')),  -- schema projection_a or projection_b
    switched_at  timestamptz not null default now()
);
insert into turnledger.active (generation) values ('a');
