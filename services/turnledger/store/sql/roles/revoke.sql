delete from ledger.role_tenants where role = %(role)s and tenant is not distinct from %(tenant)s::text
