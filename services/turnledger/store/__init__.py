"""`store`: everything that touches Postgres: the ingest transaction, COPY, named queries."""
