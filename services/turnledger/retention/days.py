"""Drops days of ``ledger.events`` that hold nothing any more: detached beside live workers, then dropped (design 3, point 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import psycopg
from psycopg import sql

from turnledger.store.named import query

YOUNGEST = 2
"""Days before today that are left alone: a transaction may have begun before midnight."""

Connection = psycopg.Connection[Any]


@dataclass(slots=True)
class Dropped:
    """Days that are gone, and those that somebody reads."""

    days: list[date] = field(default_factory=list)
    waiting: list[date] = field(default_factory=list)
    """Empty, and detached with the next run: a long reader holds them."""
    forbidden: list[date] = field(default_factory=list)
    """Empty, and the role that runs this may not drop them: the owner of the schema may."""


def drop_days(connection: Connection) -> Dropped:
    """Detach and drop every day before the last ones that has no event. ``connection`` is in autocommit mode, as a concurrent detach asks for.

    A detach that was cut short is finished; what was detached and not dropped is dropped.
    """
    done = Dropped()
    for name, day, pending in _days(connection):
        child = sql.Identifier("ledger", name)
        try:
            if pending:
                connection.execute(
                    sql.SQL("alter table ledger.events detach partition {} finalize").format(child)
                )
            elif _is_empty(connection, child):
                connection.execute(
                    sql.SQL("alter table ledger.events detach partition {} concurrently").format(child)
                )
            else:
                continue
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
            done.waiting.append(day)
            continue
        except psycopg.errors.InsufficientPrivilege:
            done.forbidden.append(day)
            continue
        done.days.append(day)
    for (name,) in connection.execute(query("retention/detached"), {"days": YOUNGEST}).fetchall():
        child = sql.Identifier("ledger", name)
        # It was empty when it was detached, and nothing is routed to it: were it not, it is evidence.
        if _is_empty(connection, child):
            connection.execute(sql.SQL("drop table {}").format(child))
    return done


def would_drop(connection: Connection, sessions: Sequence[int]) -> list[date]:
    """Days of which nothing would be left without the events of ``sessions``."""
    return [
        day
        for name, day, pending in _days(connection)
        if pending
        or not _exists(
            connection,
            sql.SQL(
                "select exists (select from {} e join ledger.streams st on st.stream_no = e.stream_no where st.session_no <> all(%s))"
            ).format(sql.Identifier("ledger", name)),
            (list(sessions),),
        )
    ]


def _days(connection: Connection) -> list[tuple[str, date, bool]]:
    found = connection.execute(query("retention/days"), {"days": YOUNGEST}).fetchall()
    return [(row[0], row[1], row[2]) for row in found]


def _is_empty(connection: Connection, child: sql.Identifier) -> bool:
    return not _exists(connection, sql.SQL("select exists (select from {})").format(child), ())


def _exists(connection: Connection, statement: sql.Composed, values: tuple[Any, ...]) -> bool:
    row = connection.execute(statement, values).fetchone()
    return bool(row and row[0])
