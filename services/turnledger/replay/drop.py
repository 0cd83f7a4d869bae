"""Gives a generation up: the one that was left at a switch, or one that is being built.

Emptied by TRUNCATE, which readers with older snapshots would see: so it waits until nobody can still read the generation, and asks for each lock
briefly, since whoever queues behind it waits too.
"""

from __future__ import annotations

import time

import psycopg
from psycopg import sql

from turnledger.replay.generation import Connection, Generation, NotNow, open_rebuild, slots
from turnledger.replay.rebuild import set_state
from turnledger.store.named import query

LOCK_MS = 150
"""Readers of all views wait behind a TRUNCATE that waits for one of them."""
PAUSE_SECONDS = 0.5


def drop(connection: Connection, wait_seconds: float) -> Generation | None:
    """Empty the slot that readers do not see; None where it is empty. Raises :class:`NotNow` where somebody still reads it after so long.

    ``connection`` is that of the only one who rebuilds, switches or drops.
    """
    with connection.transaction():
        other = slots(connection).other
        if other.state == "empty":
            return None
        there = open_rebuild(connection)
        if there is not None:
            connection.execute(query("replay/end"), {"rebuild_no": there.rebuild_no, "outcome": "dropped"})
        connection.execute(query("replay/tidy"))
        set_state(connection, other.generation, "emptying")
    until = time.monotonic() + wait_seconds
    _wait_for_readers(connection, other, until)
    for table in _tables(connection, other.slot):
        _truncate(connection, other.slot, table, until)
    with connection.transaction():
        connection.execute(
            "delete from ledger.projection_progress where generation = %s", (other.generation,)
        )
        set_state(connection, other.generation, "empty")
    return other


def _wait_for_readers(connection: Connection, other: Generation, until: float) -> None:
    while True:
        reader = connection.execute(
            query("replay/readers_before"), {"generation": other.generation}
        ).fetchone()
        if reader is None:
            return
        if time.monotonic() >= until:
            raise NotNow(
                f"process {reader[0]} ({reader[1] or 'without a name'}) reads since {reader[2]:%Y-%m-%d %H:%M:%S} UTC with a snapshot from before "
                f"the switch, and would see generation {other.generation} empty: wait for it or end it, then `turnledger replay drop` again."
            )
        time.sleep(PAUSE_SECONDS)


def _tables(connection: Connection, slot: str) -> list[str]:
    rows = connection.execute(
        "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relkind = 'r' order by 1",
        (slot,),
    )
    return [row[0] for row in rows]


def _truncate(connection: Connection, slot: str, table: str, until: float) -> None:
    while True:
        try:
            with connection.transaction():
                connection.execute(f"set local lock_timeout = {LOCK_MS}")
                connection.execute(sql.SQL("truncate {}").format(sql.Identifier(slot, table)))
            return
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() >= until:
                raise NotNow(
                    f"{slot}.{table} is always being read (a query of a view touches both generations), so it could not be emptied: look for long "
                    "queries in pg_stat_activity, then `turnledger replay drop` again."
                ) from None
            time.sleep(PAUSE_SECONDS)
