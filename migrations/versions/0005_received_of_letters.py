"""The hash of what came beside a dead letter whose bytes are redacted, so that a requeue accepts it as what it was."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SQL = Path(__file__).resolve().parents[1] / "sql" / "0005"


def run(name: str) -> None:
    """A file of this revision: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql((SQL / name).read_text(), execution_options={"no_parameters": True})


def upgrade() -> None:
    run("received.sql")


def downgrade() -> None:
    run("down.sql")
