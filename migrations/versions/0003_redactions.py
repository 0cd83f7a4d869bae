"""What ingest had to redact, so that the finding ``secret_redacted_at_ingest`` needs no look at the events."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SQL = Path(__file__).resolve().parents[1] / "sql" / "0003"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        (SQL / "redactions.sql").read_text(), execution_options={"no_parameters": True}
    )


def downgrade() -> None:
    op.execute("drop view turnledger.redactions")
    op.execute("drop table ledger.redactions")
