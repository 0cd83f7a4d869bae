-- What the rollup worker sets of a call or a contribution stands beside the turn that it was in then: a turn's rows are found without the session's.
-- Rows of before have none; the first roll-up of their session, which is whole, sets them anew.
alter table {slot}.call_overlay add column turn_no int4;
alter table {slot}.part_overlay add column turn_no int4;
alter table {slot}.repriced add column turn_no int4;
alter table {slot}.call_claims add column turn_no int4;
create index call_overlay_turn on {slot}.call_overlay (session_no, turn_no);
create index part_overlay_turn on {slot}.part_overlay (session_no, turn_no);
create index repriced_turn on {slot}.repriced (session_no, turn_no);
create index call_claims_turn on {slot}.call_claims (session_no, turn_no);
drop index {slot}.call_overlay_session;
drop index {slot}.part_overlay_session;
drop index {slot}.repriced_session;
drop index {slot}.call_claims_session;

-- What runs of turns of a long session add to its sums (fold/shares.py): level 1 is 16 turns, each further level 16 of the one below. Level 0 is one
-- row that says what the others were made for. Sessions of few turns have none.
create table {slot}.rollup_shares (
    session_no  int8 not null,
    level       int4 not null,
    block       int4 not null,
    share       text not null,
    primary key (session_no, level, block)
) with (fillfactor = 50);
