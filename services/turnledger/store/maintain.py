"""Keeps the ledger's partitions ahead of the calendar. Called by the ingest worker at its start and every hour, and by `turnledger db migrate`."""

from __future__ import annotations

from typing import Any

import psycopg

from turnledger.store.named import query

DAYS_AHEAD = 8
"""Partitions to have ready, today's included: a week in which nobody runs this costs nothing."""


def make_event_partitions(connection: psycopg.Connection[Any], days: int = DAYS_AHEAD) -> int:
    """Create the missing partitions of ``ledger.events`` for ``days`` days from today (UTC) on; returns how many.

    In the connection's transaction; any number of processes may do it at once (the function behind it takes a lock). Inserts into
    other days go on meanwhile.
    """
    missing = connection.execute(query("maintain/missing_partitions"), {"days": days}).fetchone()
    if missing is None or missing[0] == 0:
        return 0
    made = connection.execute(query("maintain/make_partitions"), {"days": days}).fetchone()
    return int(made[0]) if made is not None else 0
