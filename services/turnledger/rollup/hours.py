"""`usage_hourly`: each marked bucket is set to the sum of its parts (design 5, step 6). One worker at a time; the others go on with sessions."""

from __future__ import annotations

from turnledger.rollup.rows import Statements

BUCKETS = 500
"""In one transaction."""


def set_hours(do: Statements) -> int | None:
    """Set some stale buckets and commit; how many, 0 when none is stale, None when another worker is at it."""
    with do.connection.transaction():
        if not do.value("lock_hours"):
            return None
        stale = do.rows("take_hours", count=BUCKETS)
        if not stale:
            return 0
        # µs as numbers: the statement makes instants of them, beyond the years that Python's clock knows.
        key = {
            "tenants": [row["tenant"] for row in stale],
            "hours": [row["hour"] for row in stale],
            "providers": [row["provider"] for row in stale],
            "models": [row["model"] for row in stale],
        }
        do.run("clear_hours", "", **key)
        do.run("set_hours", "", **key)
        return len(stale)
