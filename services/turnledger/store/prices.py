"""The price catalogue's versions, the lists beneath them, and the named reprice runs, as the ledger keeps them (contract 9).

What a list says is not known here: ``rollup.prices`` makes prices of these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from turnledger.errors import TurnledgerError
from turnledger.fold.model import Row
from turnledger.fold.rollup import HOUR
from turnledger.store.named import query
from turnledger.store.read import of_slot

Connection = psycopg.Connection[Any]

STREAMED = 2_000
"""Rows that are held at once while all calls are read."""


class RepriceRefused(TurnledgerError):
    """The run cannot be what was asked for; nothing was written."""


@dataclass(frozen=True, slots=True)
class State:
    """Which prices there are: the last version and the last run, 0 where there is none."""

    version: int
    run_no: int


@dataclass(frozen=True, slots=True)
class Ran:
    """What a publication or a reprice led to."""

    number: int
    """The version, or the run."""
    at: int
    """When (µs since 1970 UTC)."""
    sessions: int
    """Marked, to be rolled up again."""


def state(connection: Connection) -> State:
    return State(*_row(connection, "state"))


def catalogues(connection: Connection) -> list[Row]:
    """{version, published_at (µs, None: always), source, own, by, why, at}, by version. Empty where no prices were ever asked for."""
    return _rows(connection, "catalogues")


def reprices(connection: Connection) -> list[Row]:
    """{run_no, name, version, since, until (µs), sessions, by, why}, by number."""
    return _rows(connection, "reprices")


def price_list(connection: Connection, source: str) -> bytes:
    """The bytes that were kept of a packaged list. ``LookupError`` for one that was not."""
    row = connection.execute(query("prices/list"), {"source": source}).fetchone()
    if row is None:
        raise LookupError(source)
    return bytes(row[0])


def keep_first(connection: Connection, source: str, content: bytes, by: str) -> None:
    """Make version 1 of the packaged list, unless there is one. Commits."""
    with connection.transaction():
        connection.execute(query("prices/keep_list"), {"source": source, "content": content})
        connection.execute(query("prices/first"), {"source": source, "by": by})


def publish(
    connection: Connection, *, source: str, content: bytes | None, own: Row, by: str, why: str | None
) -> Ran:
    """Add a version and mark the sessions whose first prices it decides: calls of later hours (a clock may run ahead), and those without one.

    ``content``: of the list, where it is a new one. Commits. Waits until no session is being rolled up.
    """
    with connection.transaction():
        connection.execute(query("prices/lock"))
        if content is not None:
            connection.execute(query("prices/keep_list"), {"source": source, "content": content})
        version, at = _row(connection, "publish", source=source, own=Jsonb(own), by=by, why=why)
        (sessions,) = _row(connection, "mark", timeless=True, since=at - at % HOUR, until=None)
    return Ran(version, at, sessions)


def reprice(
    connection: Connection, *, name: str, version: int, since: int | None, by: str, why: str | None
) -> Ran:
    """Add a run over the hours from ``since`` (the beginning of one, µs) until now and mark its sessions. Commits; waits as :func:`publish`.

    Raises :class:`RepriceRefused` for a name that a run has.
    """
    try:
        with connection.transaction():
            connection.execute(query("prices/lock"))
            (at,) = _row(connection, "now")
            (sessions,) = _row(connection, "mark", timeless=since is None, since=since, until=at - at % HOUR)
            (number,) = _row(
                connection,
                "reprice",
                name=name,
                version=version,
                since=since,
                until=at,
                sessions=sessions,
                by=by,
                why=why,
            )
    except psycopg.errors.UniqueViolation:
        raise RepriceRefused(
            f"a reprice named {name!r} was run before: `turnledger prices show` tells when; give this one a name of its own."
        ) from None
    except psycopg.errors.ForeignKeyViolation:
        raise RepriceRefused(
            f"version {version} of the catalogue was never published: `turnledger prices show` lists those that were."
        ) from None
    return Ran(number, at, sessions)


def seen(connection: Connection, slot: str) -> list[Row]:
    """{provider, model, calls, cost_micro_usd, unpriced} of the models that the ledger has seen, most calls first."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(of_slot("prices/seen", slot)).fetchall()


def priced(connection: Connection, slot: str, since: int | None) -> Iterator[Row]:
    """What a price is asked of every call and contribution from an hour on (µs; None: of all), ``hour_at`` in µs. Streamed."""
    with connection.cursor(row_factory=dict_row) as cursor:
        yield from cursor.stream(of_slot("prices/priced", slot), {"since": since}, size=STREAMED)


def _rows(connection: Connection, name: str) -> list[Row]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(f"prices/{name}")).fetchall()


def _row(connection: Connection, statement: str, /, **given: Any) -> tuple[Any, ...]:
    row = connection.execute(query(f"prices/{statement}"), given).fetchone()
    assert row is not None, statement
    return tuple(row)
