-- Back to 0010. The roles stay: other databases of the server may use them.
drop policy tenants on ledger.sessions;
drop policy workers on ledger.sessions;
alter table ledger.sessions disable row level security;
drop view ledger.my_tenants;
drop table ledger.role_tenants;
alter function ledger.make_event_partitions(date, int4) security invoker;
alter function ledger.make_event_partitions(date, int4) reset search_path;
grant execute on function ledger.make_event_partitions(date, int4) to public;
revoke all on all tables in schema ledger, projection_a, projection_b, turnledger from turnledger_reader, turnledger_writer, turnledger_views;
revoke all on all sequences in schema ledger, projection_a, projection_b from turnledger_writer;
revoke all on schema ledger, projection_a, projection_b, turnledger from turnledger_reader, turnledger_writer, turnledger_views;
alter default privileges in schema ledger revoke all on tables from turnledger_writer;
revoke execute on function ledger.make_event_partitions(date, int4) from turnledger_writer;
