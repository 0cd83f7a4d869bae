"""Reads the ledger back: the accepted events of a session as the fold takes them. Writes nothing."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple

import psycopg

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.errors import TurnledgerError
from turnledger.fold.version import FOLD_VERSION
from turnledger.store.named import query

PIECE_EVENTS = 1000
PIECE_BYTES = 4 * 1024 * 1024
"""Of a long session at once."""
FETCHED = 250
"""Rows of one answer of the database: a record may have a mebibyte."""


class LedgerUnreadable(TurnledgerError):
    """An accepted event is not one any more: the stored bytes, or the reader, have changed."""


class OtherFold(TurnledgerError):
    """Readers see a generation that another version of the fold has filled: this program must not write it (design 6)."""


class SessionRef(NamedTuple):
    """One session by its natural key and its number."""

    session_no: int
    tenant: str
    session_id: str


def session_events(connection: psycopg.Connection[Any], session_no: int) -> list[Event]:
    """All accepted events of a session, in no order, each identity once. ``position`` is its Kafka offset.

    Empty for a number that no session has. Raises :class:`LedgerUnreadable`.
    """
    with connection.cursor(binary=True) as cursor:
        cursor.execute(query("read/session_events"), {"session_no": session_no})
        return [event for _, event in _accepted((session_no, *row) for row in cursor)]


class Known(NamedTuple):
    """What somebody has read of one stream: numbers up to ``hi``, −1 when none, and the first ``receipts`` events without a number."""

    session_no: int
    stream_no: int
    hi: int
    receipts: int


def later_events(
    connection: psycopg.Connection[Any], known: Sequence[Known], day: date
) -> dict[int, list[Event]]:
    """By session the events of these streams beyond what is known, stored on ``day`` or later, in the order in which they were committed.
    Numbers below ``hi`` that came late are not among them: whoever asks counts. Raises :class:`LedgerUnreadable`.
    """
    found: dict[int, list[Event]] = defaultdict(list)
    if known:
        sessions, streams, his, receipts = map(list, zip(*known, strict=True))
        columns = {"sessions": sessions, "streams": streams, "his": his, "receipts": receipts}
        with connection.cursor(binary=True) as cursor:
            cursor.execute(query("load/later_events"), {**columns, "day": day})
            for session_no, event in _accepted(cursor):
                found[session_no].append(event)
    return found


def _accepted(rows: Iterable[tuple[int, bytes, int, int, int]]) -> Iterator[tuple[int, Event]]:
    """Events by session number from (session_no, raw, kafka_offset, stream_no, seq)."""
    # What was accepted stays accepted, whatever limit is set now.
    read = FastReader(limit=sys.maxsize).read
    for session_no, raw, offset, stream_no, seq in rows:
        event = accepted(read(raw), session_no, stream_no, seq)
        event.position = offset
        yield session_no, event


def accepted(read: Event | Rejected, session_no: int, stream_no: int, seq: int) -> Event:
    """What was read of a stored event: it was accepted once. Raises :class:`LedgerUnreadable` where it is refused now."""
    if isinstance(read, Rejected):
        raise LedgerUnreadable(
            f"the event at stream_no {stream_no}, seq {seq} of session_no {session_no} was accepted once and is refused now "
            f"({read.reason}: {read.detail}): restore ledger.events from a backup, or run the version that wrote it."
        )
    return read


def ordered_pieces(
    connection: psycopg.Connection[Any], session_no: int, columns: Sequence[str]
) -> Generator[list[tuple[Any, ...]]]:
    """The events of one session about in the order of contract 5, some at a time: ``raw``, then these columns of ``ledger.events``. In the caller's
    transaction; beside it others can be asked for."""
    statement = query("read/ordered_events").replace(
        b"{columns}", ", ".join(f"e.{name}" for name in ("raw", *columns)).encode()
    )
    piece: list[tuple[Any, ...]] = []
    size = 0
    with connection.cursor("ordered_events", binary=True) as cursor:
        cursor.itersize = FETCHED
        for row in cursor.execute(statement, {"session_no": session_no}):
            piece.append(row)
            size += len(row[0])
            if len(piece) >= PIECE_EVENTS or size >= PIECE_BYTES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def active_slot(connection: psycopg.Connection[Any]) -> str:
    """The schema of the active generation: ``projection_a`` or ``projection_b`` (design 6)."""
    row = connection.execute(query("read/active")).fetchone()
    if row is None:
        raise LedgerUnreadable(
            "turnledger.active has no row, so that no generation is shown: insert one with generation 'a' (or 'b')."
        )
    return f"projection_{row[0]}"


def writable_slot(connection: psycopg.Connection[Any]) -> str:
    """The same for whoever writes it. Raises :class:`OtherFold` where its rows are of another version of the fold than this program's."""
    row = connection.execute(query("read/active")).fetchone()
    slot = active_slot(connection) if row is None else f"projection_{row[0]}"
    if row is not None and row[1] is not None and row[1] != FOLD_VERSION:
        raise OtherFold(
            f"readers see generation {row[0]}, which fold version {row[1]} fills; this program folds version {FOLD_VERSION} and writes nothing "
            "into it: run the program of that version, or rebuild with this one (`turnledger replay projections`) and switch."
        )
    return slot


def of_slot(name: str, slot: str) -> bytes:
    """The query ``name`` with ``{slot}`` replaced by a schema that :func:`active_slot` gave."""
    return query(name).replace(b"{slot}", slot.encode())
