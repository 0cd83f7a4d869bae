"""Dead letters that come again with an account of their own, and partitions that stand still until somebody lets them go on.

The SQL stands in ``migrations/sql/0002`` and is frozen: a later change of a column list is a later revision.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SQL = Path(__file__).resolve().parents[1] / "sql"


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def view_of_0001(name: str) -> str:
    """The statement of one of the views that revision 0001 made over the ledger."""
    text = (SQL / "0001" / "views_ledger.sql").read_text()
    start = text.index(f"create view turnledger.{name} as")
    return text[start : text.index(";", start) + 1]


def upgrade() -> None:
    run((SQL / "0002" / "ledger.sql").read_text())
    run((SQL / "0002" / "views.sql").read_text())


def downgrade() -> None:
    run("drop view turnledger.accounts, turnledger.requeue_batches, turnledger.partition_stops")
    for name in ("dead_letters", "events"):
        run(f"drop view turnledger.{name}")
        run(view_of_0001(name))
    run((SQL / "0002" / "down.sql").read_text())
