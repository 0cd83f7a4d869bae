"""Rows of findings stand in the order of their turns, not of the numbers that turns were given as they were written."""

from __future__ import annotations

import re
from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql"
SLOTS = {"a": "projection_a", "b": "projection_b"}
"""Schema of each generation."""


def show(body: str) -> None:
    """The view as the union of both slots."""
    branches = (body.replace("{slot}", slot).replace("{letter}", letter) for letter, slot in SLOTS.items())
    text = "create or replace view turnledger.findings as\n" + "\nunion all\n".join(branches)
    op.get_bind().exec_driver_sql(text, execution_options={"no_parameters": True})


def upgrade() -> None:
    show((FOLDER / "0006" / "findings.sql").read_text())


def downgrade() -> None:
    before = (FOLDER / "0001" / "views_projection.sql").read_text()
    parts = re.split(r"^-- view: (\w+)\n", before, flags=re.MULTILINE)[1:]
    show(dict(zip(parts[::2], parts[1::2], strict=True))["findings"])
