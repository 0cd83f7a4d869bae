"""Versions of the price catalogue, named reprice runs, and the prices that a reprice replaced.

The SQL stands in ``migrations/sql/0007`` and is frozen: a later change of a column list is a later revision.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql" / "0007"
SLOTS = {"a": "projection_a", "b": "projection_b"}
"""Schema of each generation."""


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def upgrade() -> None:
    run((FOLDER / "ledger.sql").read_text())
    for slot in SLOTS.values():
        run((FOLDER / "projection.sql").read_text().replace("{slot}", slot))
    parts = re.split(r"^-- view: (\w+)\n", (FOLDER / "views.sql").read_text(), flags=re.MULTILINE)[1:]
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        branches = (
            body.replace("{slot}", slot).replace("{letter}", letter) for letter, slot in SLOTS.items()
        )
        run(f"create view turnledger.{name} as\n" + "\nunion all\n".join(branches))
    run((FOLDER / "views_ledger.sql").read_text())


def downgrade() -> None:
    run("drop view turnledger.call_prices, turnledger.reprices, turnledger.price_catalogues")
    run(";\n".join(f"drop table {slot}.repriced" for slot in SLOTS.values()))
    run("drop table ledger.reprices, ledger.price_catalogues, ledger.price_lists")
