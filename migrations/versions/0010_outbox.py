"""The outbox: turn records that wait to be sent to other systems."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql" / "0010"
SLOTS = {"a": "projection_a", "b": "projection_b"}
"""Schema of each generation."""


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def upgrade() -> None:
    run((FOLDER / "ledger.sql").read_text())
    body = (FOLDER / "projection.sql").read_text()
    for letter, slot in SLOTS.items():
        run(body.replace("{slot}", slot).replace("{letter}", letter))


def downgrade() -> None:
    for slot in SLOTS.values():
        run(f"drop trigger turns_outbox on {slot}.turns")
    run("drop function ledger.outbox_is_on(), ledger.outbox_turns()")
    run("drop table ledger.outbox")
