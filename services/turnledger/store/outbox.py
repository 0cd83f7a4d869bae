"""The outbox as the ledger keeps it: turns that wait to be sent to other systems, in the order of a session's commits (design 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from turnledger.store.named import query
from turnledger.store.read import active_slot, of_slot

Connection = psycopg.Connection[Any]

SLOTS = ("projection_a", "projection_b")


class Waiting(NamedTuple):
    """A turn that waits, as it is now."""

    outbox_no: int
    tenant: str
    session_id: str
    turn_key: str
    revision: int | None
    """None, with what follows, where the turn is open again or was taken back: there is nothing to send."""
    digest: str | None
    record: bytes | None


class State(NamedTuple):
    """How much waits."""

    rows: int
    oldest_seconds: float
    on: bool
    """Whoever writes a turn that ended writes a row."""


def batch(connection: Connection, count: int) -> list[Waiting]:
    """The oldest rows."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(of_slot("outbox/batch", active_slot(connection)), {"count": count})
        return [Waiting(*row) for row in cursor]


def sent(connection: Connection, numbers: Sequence[int]) -> None:
    """These rows wait no more."""
    connection.execute(query("outbox/sent"), {"numbers": list(numbers)})


def hold(connection: Connection) -> bool:
    """Whether this connection alone sends from now on, until it is closed."""
    row = connection.execute(query("outbox/hold")).fetchone()
    return bool(row and row[0])


def state(connection: Connection) -> State:
    row = connection.execute(query("outbox/waiting")).fetchone()
    assert row is not None
    return State(*row)


def switch(connection: Connection, *, on: bool) -> None:
    """From now on turns that end are written to the outbox, or are not. Waits for the transactions that write turns."""
    verb = "enable" if on else "disable"
    with connection.transaction():
        for slot in SLOTS:
            connection.execute(f"alter table {slot}.turns {verb} trigger turns_outbox".encode())


def fill(connection: Connection) -> int:
    """Every turn that has ended waits to be sent; how many."""
    return connection.execute(of_slot("outbox/fill", active_slot(connection))).rowcount


def clear(connection: Connection) -> int:
    """Nothing waits any more; how many did."""
    return connection.execute("delete from ledger.outbox").rowcount
