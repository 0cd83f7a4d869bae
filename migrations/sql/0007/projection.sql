-- Every price that a call or a contribution ever had, where a reprice run set one: the first as run 0, the last one counts and stands in the
-- overlays too (contract 9: a reprice writes new rows and keeps the old).
create table {slot}.repriced (
    session_no       int8 not null,
    call_key         text collate "C",
    part_key         text collate "C",
    run_no           int4 not null,
    cost_micro_usd   int8,
    cost_fidelity    text,
    price_id         text,
    catalog_version  int4,
    unpriced         bool
);
create index repriced_session on {slot}.repriced (session_no);
