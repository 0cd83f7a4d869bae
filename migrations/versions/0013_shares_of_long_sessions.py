"""A long session is rolled up by the turns that moved: marks name them, and the sums of the others are kept.

The SQL stands in ``migrations/sql/0013`` and is frozen: a later change of a column list is a later revision.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql" / "0013"
SLOTS = ("projection_a", "projection_b")


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def in_both(name: str) -> None:
    for slot in SLOTS:
        run((FOLDER / name).read_text().replace("{slot}", slot))


def upgrade() -> None:
    run((FOLDER / "ledger.sql").read_text())
    in_both("projection.sql")


def downgrade() -> None:
    in_both("down.sql")
    run("alter table ledger.marks drop column turns, drop column slot")
    run("alter table ledger.shadow_marks drop column turns, drop column slot")
