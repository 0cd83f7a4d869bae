-- usage_hourly has a tenant and no session; `{slot}` is projection_a or projection_b.
alter table {slot}.usage_hourly enable row level security;
create policy tenants on {slot}.usage_hourly for select to turnledger_views using (
    (select exists (select from ledger.my_tenants m where m.tenant is null))
    or tenant = any ((select array_agg(m.tenant) from ledger.my_tenants m)::text[])
);
create policy workers on {slot}.usage_hourly to turnledger_writer using (true) with check (true);
