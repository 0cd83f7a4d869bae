"""What the ledger knows of sessions, for people and scripts: one session whole. Reads the views, writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from turnledger.doctor.naming import NoSuchSession, find_session
from turnledger.doctor.rows import told as _rows
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot

__all__ = ["NoSuchSession", "find_session", "show_session"]

Row = dict[str, Any]


def show_session(connection: psycopg.Connection[Any], session_id: str, tenant: str | None = None) -> Row:
    """One session whole, from one snapshot. ``session_id``: an id, ``tenant/session_id``, or a name (``naming.find_session``).

    {session, streams, turns, gaps, conflicts, dead_letters, findings}: the rows of the views of those names, turns in the order of contract 7.
    ``session`` is null while the rollup worker has not seen it. Begins a transaction on ``connection``, which must be in none.
    """
    with one_snapshot(connection):
        return session_rows(connection, find_session(connection, session_id, tenant))


@contextmanager
def one_snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Inside, every query sees the same moment. ``connection`` must be in no transaction."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    with connection.transaction():
        yield


def session_rows(connection: psycopg.Connection[Any], found: SessionRef) -> Row:
    """What :func:`show_session` gives, for a session that was found, in the caller's transaction."""
    key = {"tenant": found.tenant, "session_id": found.session_id}
    number = {"session_no": found.session_no}
    order = of_slot("read/session_turn_order", active_slot(connection))
    place = {key: at for at, (key,) in enumerate(connection.execute(order, number))}
    turns = _rows(connection, query("read/session_turns"), key)
    turns.sort(key=lambda turn: place[turn["turn_key"]])
    return {
        "session": next(iter(_rows(connection, query("read/session_rollup"), key)), None),
        "streams": _rows(connection, query("read/session_streams"), number),
        "turns": turns,
        "gaps": _rows(connection, query("read/session_gaps"), key),
        "conflicts": _rows(connection, query("read/session_conflicts"), key),
        "dead_letters": _rows(connection, query("read/session_dead_letters"), key),
        "findings": _rows(connection, query("read/session_findings"), key),
    }
