delete from ledger.role_tenants where role = %(role)s
