insert into ledger.role_tenants (role, tenant) values (%(role)s, %(tenant)s) on conflict do nothing
