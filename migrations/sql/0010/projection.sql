create trigger turns_outbox after insert on {slot}.turns
    referencing new table as new_turns for each statement execute function ledger.outbox_turns('{letter}');
alter table {slot}.turns disable trigger turns_outbox;
