"""Alembic's environment: runs revisions on the connection that `turnledger.store.migrate` opened, and opens none itself."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Migrations run through `turnledger db migrate`, which takes the locks they need.")

context.configure(
    connection=connection,
    version_table="schema_version",
    version_table_schema="ledger",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
