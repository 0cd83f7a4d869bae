"""Replays of topics: what was asked for, by whom, how far each came and what it found."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql" / "0008"


def run(name: str) -> None:
    op.get_bind().exec_driver_sql((FOLDER / name).read_text(), execution_options={"no_parameters": True})


def upgrade() -> None:
    run("up.sql")


def downgrade() -> None:
    run("down.sql")
