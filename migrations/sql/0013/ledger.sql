-- The turns that a mark is about, by their numbers in one generation: none where only the session's own rows moved, null where it may be any of
-- them. So a long session is not read whole for one turn.
alter table ledger.marks add column turns int4[], add column slot text;
alter table ledger.shadow_marks add column turns int4[], add column slot text;
