insert into ledger.archives (tenant, day, url, events, sessions, vacuumed, bytes, last_batch, digest, archived_by)
values (%(tenant)s, %(day)s, %(url)s, %(events)s, %(sessions)s, %(vacuumed)s, %(bytes)s, %(last_batch)s, %(digest)s, %(by)s)
on conflict (tenant, day, url) do nothing
