"""The ledger, two slots of projections, and the views that people query.

The SQL stands in ``migrations/sql/0001`` and is frozen: a later change of a column list is a later revision.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).resolve().parents[1] / "sql" / "0001"
SLOTS = {"a": "projection_a", "b": "projection_b"}
"""Schema of each generation."""
PARTITIONS_AHEAD = 8
"""Days of event partitions to begin with, today included; the worker keeps making more."""


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def blocks(text: str) -> list[tuple[str, str]]:
    """The parts of a file that begin with ``-- view: NAME``, in its order."""
    parts = re.split(r"^-- view: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def upgrade() -> None:
    run((SQL / "ledger.sql").read_text())
    run(f"select ledger.make_event_partitions(ledger.today(), {PARTITIONS_AHEAD})")
    projection = (SQL / "projection.sql").read_text()
    for slot in SLOTS.values():
        run(projection.replace("{slot}", slot))
    run((SQL / "pointer.sql").read_text())
    run((SQL / "views_ledger.sql").read_text())
    for name, body in blocks((SQL / "views_projection.sql").read_text()):
        branches = (
            body.replace("{slot}", slot).replace("{letter}", letter) for letter, slot in SLOTS.items()
        )
        run(f"create view turnledger.{name} as\n" + "\nunion all\n".join(branches))


def downgrade() -> None:
    run("drop schema turnledger cascade")
    for slot in SLOTS.values():
        run(f"drop schema {slot} cascade")
    run((SQL / "down.sql").read_text())
