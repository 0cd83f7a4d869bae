-- The lock of everybody who decides about a call, taken in one order (design 5, step 3).
insert into {slot}.call_groups (identity)
select unnest(%(identities)b::bytea[])
on conflict (identity) do update set version = call_groups.version + 1
