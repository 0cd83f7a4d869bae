-- Every view over rows of a session joins ledger.sessions, so its policy is theirs. Each expression is asked once a statement.
alter table ledger.sessions enable row level security;
create policy tenants on ledger.sessions for select to turnledger_views using (
    (select exists (select from ledger.my_tenants m where m.tenant is null))
    or tenant = any ((select array_agg(m.tenant) from ledger.my_tenants m)::text[])
);
create policy workers on ledger.sessions to turnledger_writer using (true) with check (true);
