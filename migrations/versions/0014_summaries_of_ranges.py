"""Indexes by range are told by turnledger what was appended, not by requests to the server, of which it keeps few and logs the others. Events are not
vacuumed for what was inserted.

The SQL stands in ``migrations/sql/0014`` and is frozen. Indexes that are there are changed beside live workers (``turnledger.store.surface``).
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql" / "0014"


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def upgrade() -> None:
    run((FOLDER / "summaries.sql").read_text())


def downgrade() -> None:
    run((FOLDER / "down.sql").read_text())
