"""Binary COPY into several tables at once: one question for all of them, each body in one piece.

Through a cursor a COPY takes five hand-overs of the interpreter from this thread to the one that folds and back; here it takes one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result
from psycopg.waiting import Ready, Wait

from turnledger.store.write_binary import copied, whole

Connection = psycopg.Connection[Any]

PIECE_BYTES = 256 * 1024
"""So much is given to libpq before the socket is asked to take it: that much more memory, whatever a body's size."""

_Waiting = Generator[Wait, Ready | int, None]
"""As psycopg has it: what is waited for, and what came."""


@dataclass(frozen=True, slots=True)
class Copy:
    """What goes into one table."""

    statement: bytes
    body: bytes
    """A whole binary COPY."""


class Copies:
    """COPYs that wait for each other: :meth:`write` sends them in the order in which they were added."""

    def __init__(self) -> None:
        self._copies: list[Copy] = []

    def add(self, table: str, names: Iterable[str], rows: Sequence[bytes], constant: bytes = b"") -> None:
        """Rows of ``table``, each beginning with ``constant``. Nothing without rows."""
        if rows:
            self.add_bodies(table, names, [copied(constant, rows) if constant else b"".join(rows)])

    def add_bodies(self, table: str, names: Iterable[str], bodies: Sequence[bytes]) -> None:
        """Rows that are joined already, or pieces of them."""
        self._copies.append(Copy(_statement(table, tuple(names)), whole(bodies)))

    def write(self, connection: Connection) -> None:
        """Send them all, in the transaction that is open. The first that Postgres refuses ends it: raises what psycopg raises."""
        copies, self._copies = self._copies, []
        if not copies:
            return
        pgconn = connection.pgconn
        if pgconn.transaction_status == pq.TransactionStatus.IDLE:
            raise RuntimeError(
                "COPY of several tables without a transaction: the first of them would be its own"
            )
        with connection.lock:
            connection.wait(_run(pgconn, copies, connection.info.encoding))


def copy(
    connection: Connection, table: str, names: Iterable[str], rows: Sequence[bytes], constant: bytes = b""
) -> None:
    """COPY of rows into one table, each beginning with ``constant``, in the transaction that is open. Nothing happens without rows."""
    copies = Copies()
    copies.add(table, names, rows, constant)
    copies.write(connection)


@lru_cache(maxsize=256)
def _statement(table: str, names: tuple[str, ...]) -> bytes:
    # Quoting fifty names takes longer than sending a dozen rows.
    statement = sql.SQL("copy {} ({}) from stdin (format binary)").format(
        sql.Identifier(*table.split(".")), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    return statement.as_bytes(None)


def _run(pgconn: pq.abc.PGconn, copies: Sequence[Copy], encoding: str) -> _Waiting:
    pgconn.send_query(b"; ".join(copy.statement for copy in copies))
    yield from _sent(pgconn)
    waiting = iter(copies)
    refused: pq.abc.PGresult | None = None
    while (result := (yield from _answer(pgconn))) is not None:
        if result.status == pq.ExecStatus.COPY_IN:
            body = memoryview(next(waiting).body)
            for at in range(0, len(body), PIECE_BYTES):
                pgconn.put_copy_data(body[at : at + PIECE_BYTES])
                yield from _sent(pgconn)
            pgconn.put_copy_end()
            yield from _sent(pgconn)
        elif result.status != pq.ExecStatus.COMMAND_OK:
            refused = result
    if refused is not None:
        raise error_from_result(refused, encoding=encoding)


def _sent(pgconn: pq.abc.PGconn) -> _Waiting:
    """What was given to libpq is the socket's."""
    while pgconn.flush():
        while not (ready := (yield Wait.RW)):
            pass
        if ready & Ready.R:
            # A server that has something to say may not read before it has said it.
            pgconn.consume_input()


def _answer(pgconn: pq.abc.PGconn) -> Generator[Wait, Ready | int, pq.abc.PGresult | None]:
    """The next result; None after the last one."""
    while pgconn.is_busy():
        while not (yield Wait.R):
            pass
        pgconn.consume_input()
    return pgconn.get_result()
