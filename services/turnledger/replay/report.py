"""What `turnledger replay status` tells: slots, positions, the rebuild that is open, what differs, the last switches."""

from __future__ import annotations

from typing import Any

from turnledger.doctor.rows import told as rows_of
from turnledger.replay.follow import beyond
from turnledger.replay.generation import Connection, open_rebuild
from turnledger.replay.rebuild import progress
from turnledger.store.named import query

Row = dict[str, Any]


def told(connection: Connection) -> Row:
    """One object, as ``--json`` prints it. Sizes in bytes; instants as text in UTC."""
    sizes = dict(connection.execute(query("replay/sizes")).fetchall())
    generations = rows_of(connection, query("replay/generations"), {})
    for one in generations:
        one["bytes"] = int(sizes.get(f"projection_{one['generation']}", 0))
        follows = one["state"] in ("building", "kept")
        one["behind_events"] = beyond(connection, one["generation"]).events if follows else None
    return {
        "generations": generations,
        "rebuild": _rebuild(connection),
        "positions": rows_of(connection, query("replay/positions"), {}),
        "switches": rows_of(connection, query("replay/switches"), {}),
    }


def _rebuild(connection: Connection) -> Row | None:
    there = open_rebuild(connection)
    if there is None:
        return None
    row: Row = rows_of(connection, query("replay/open"), {})[0]
    far = progress(connection, there)
    row |= {
        "events": far.events,
        "events_done": far.events_done,
        "compared": far.compared,
        "compared_done": far.compared_done,
        "pieces": far.pieces,
        "pieces_done": far.pieces_done,
        "marks": far.marks,
    }
    row |= rows_of(connection, query("replay/doubt_counts"), {})[0]
    held = connection.execute(query("replay/at_work")).fetchone()
    row["at_work"] = bool(held is not None and held[0])
    return row
