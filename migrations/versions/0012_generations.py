"""Generations of projections: what stands in each slot, how a rebuild goes on, and every switch of readers."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SQL = Path(__file__).resolve().parents[1] / "sql" / "0012"


def run(name: str) -> None:
    """A file of this revision: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql((SQL / name).read_text(), execution_options={"no_parameters": True})


def upgrade() -> None:
    run("generations.sql")


def downgrade() -> None:
    run("down.sql")
