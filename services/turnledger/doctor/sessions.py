"""What the ledger knows of sessions, for people and scripts: the list, and one session whole. Reads the views, writes nothing."""

from __future__ import annotations

from typing import Any

import psycopg

from turnledger.doctor.rows import told as _rows
from turnledger.errors import TurnledgerError
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, find_sessions, of_slot

Row = dict[str, Any]


class NoSuchSession(TurnledgerError):
    """The ledger has no session of that id, or several tenants have one."""


def list_sessions(
    connection: psycopg.Connection[Any], *, count: int = 20, tenant: str | None = None
) -> list[Row]:
    """The ``count`` sessions with the latest activity: rows of ``turnledger.sessions``, instants as text (contract 17)."""
    return _rows(connection, query("read/list_sessions"), {"count": count, "tenant": tenant})


def find_session(
    connection: psycopg.Connection[Any], session_id: str, tenant: str | None = None
) -> SessionRef:
    """The one session of that id. Raises :class:`NoSuchSession` when there is none, or one each of several tenants."""
    found = find_sessions(connection, session_id, tenant)
    if not found:
        where = "" if tenant is None else f" of tenant {tenant!r}"
        raise NoSuchSession(
            f"the ledger has no session {session_id!r}{where}: `turnledger sessions list` shows those it has."
        )
    if len(found) > 1:
        tenants = ", ".join(one.tenant for one in found)
        raise NoSuchSession(
            f"several tenants have a session {session_id!r} ({tenants}): name one with --tenant."
        )
    return found[0]


def show_session(connection: psycopg.Connection[Any], session_id: str, tenant: str | None = None) -> Row:
    """One session whole, from one snapshot.

    {session, streams, turns, gaps, conflicts, dead_letters, findings}: the rows of the views of those names, turns in the order of contract 7.
    ``session`` is null while the rollup worker has not seen it. Begins a transaction on ``connection``, which must be in none.
    """
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    with connection.transaction():
        found = find_session(connection, session_id, tenant)
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
