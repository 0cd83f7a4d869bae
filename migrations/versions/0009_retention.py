"""Vacuumed sessions, retention runs and archives: who let go of what, and what is kept so that the rest can be proven."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql"


def run(name: str) -> None:
    text = (FOLDER / "0009" / name).read_text()
    op.get_bind().exec_driver_sql(text, execution_options={"no_parameters": True})


def upgrade() -> None:
    run("retention.sql")


def downgrade() -> None:
    run("down.sql")
