"""Rows for model items, tool responses and bodies, and the columns of point events that the harness ledger has.

The SQL stands in ``migrations/sql/0004`` and is frozen: a later change of a column list is a later revision.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql"
SLOTS = {"a": "projection_a", "b": "projection_b"}
"""Schema of each generation."""


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def in_both(name: str) -> None:
    """Run a file of this revision in both slots."""
    text = (FOLDER / "0004" / name).read_text()
    for slot in SLOTS.values():
        run(text.replace("{slot}", slot))


def view(body: str, verb: str, name: str) -> None:
    """A view as the union of both slots; what stands before its first ``select`` are comments."""
    branches = (body.replace("{slot}", slot).replace("{letter}", letter) for letter, slot in SLOTS.items())
    run(f"{verb} turnledger.{name} as\n" + "\nunion all\n".join(branches))


def blocks(text: str) -> dict[str, str]:
    """The parts of a file that begin with ``-- view: NAME``, in its order."""
    parts = re.split(r"^-- view: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def upgrade() -> None:
    in_both("projection.sql")
    for name, body in blocks((FOLDER / "0004" / "views.sql").read_text()).items():
        view(body, "create or replace view", name)
    in_both("tidy.sql")
    run("drop table ledger.event_bodies")  # it never had rows: bodies are projected like everything else


def downgrade() -> None:
    changed = blocks((FOLDER / "0004" / "views.sql").read_text())
    run(";\n".join(f"drop view turnledger.{name}" for name in changed))
    in_both("down.sql")
    run((FOLDER / "0004" / "down_ledger.sql").read_text())
    before = blocks((FOLDER / "0001" / "views_projection.sql").read_text())
    for name in changed:
        if name in before:
            view(before[name], "create view", name)
