"""Keeps the ledger's partitions ahead of the calendar, and the planner's statistics and the indexes by range not too far behind what is stored.

Partitions are made by the ingest worker at its start and every hour, and by `turnledger db migrate`; statistics, and what
indexes by range know, by the rollup worker.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from turnledger.store.named import query

DAYS_AHEAD = 8
"""Partitions to have ready, today's included: a week in which nobody runs this costs nothing."""

UNKNOWN_ROWS = 1000
"""Changed rows from which it matters what the planner believes of a table."""


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


def analyze(connection: psycopg.Connection[Any], schema: str, table: str) -> None:
    """Tell the planner of a table. Where autovacuum is at it, it does the same."""
    connection.execute(sql.SQL("analyze (skip_locked) {}").format(sql.Identifier(schema, table)))


def tell_planner(connection: psycopg.Connection[Any]) -> str | None:
    """Analyze the table that has grown most since it was last analyzed, if one has threefold, and return its name. Call it now and then.

    Autovacuum does the same, but comes once a minute, and later where it is held up by a vacuum of the events: the first minutes of a fleet are a million
    events of which the planner believes that there are none, and it then reads whole tables, with several processes, for one session.
    Raises what psycopg raises; at most 30,000 rows are looked at.
    """
    can_maintain = connection.info.server_version >= 170_000
    found = connection.execute(
        query("maintain/behind"), {"rows": UNKNOWN_ROWS, "can_maintain": can_maintain}
    ).fetchone()
    if found is None:
        return None
    analyze(connection, *found)
    return ".".join(found)


def summarize(connection: psycopg.Connection[Any], index: str, first: int | None = None) -> int | None:
    """Tell an index by range what was appended; how many ranges were told, None where none could be now or there is no such index. ``first``: the first
    block of its table that it may not know, and a range that is not full yet is left; None: any."""
    row = connection.execute(query("maintain/summarize"), {"index": index, "first": first}).fetchone()
    return None if row is None else row[0]


class Ranges:
    """Tells the indexes by range (BRIN) what was appended. One a process; it remembers how far each of them knows its table."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def summarize(self, connection: psycopg.Connection[Any]) -> int:
        """Summarize the ranges that were filled since the last call; how many were. Each is committed by itself where the connection is in autocommit.

        Until then a question reads all of them, and the first to read a page writes that its rows are committed. The server's own way
        (``autosummarize``) keeps 256 requests a minute, which a fleet fills in seconds. Raises what psycopg raises.
        """
        made = 0
        for index, blocks in connection.execute(query("maintain/ranges")).fetchall():
            known = self._known.get(index)
            if blocks == (known or 0):
                continue
            first = None if known is None or blocks < known else known
            found = summarize(connection, index, first)
            if found is not None:
                made += found
                self._known[index] = blocks
        return made
