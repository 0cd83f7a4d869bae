-- What is not rolled up yet in the new generation is the rollup worker's from now on.
with moved as (
    delete from ledger.shadow_marks returning session_no
)
insert into ledger.marks (session_no) select distinct session_no from moved
