"""The ledger, two slots of projections, and the views that people query.

The SQL stands in ``migrations/sql/0001`` and is frozen: a later change of a column list is a later revision.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).resolve().parents[1] / "sql" / "0001"
SLOTS = ("projection_a", "projection_b")
PARTITIONS_AHEAD = 8
"""Days of event partitions to begin with, today included; the worker keeps making more."""


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def upgrade() -> None:
    run((SQL / "ledger.sql").read_text())
    run(f"select ledger.make_event_partitions(ledger.today(), {PARTITIONS_AHEAD})")
    projection = (SQL / "projection.sql").read_text()
    for slot in SLOTS:
        run(projection.replace("{slot}", slot))
    run((SQL / "pointer.sql").read_text())


def downgrade() -> None:
    run("drop schema turnledger cascade")
    for slot in SLOTS:
        run(f"drop schema {slot} cascade")
    run((SQL / "down.sql").read_text())
