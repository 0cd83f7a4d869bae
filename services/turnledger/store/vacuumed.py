"""Vacuumed sessions as the ledger keeps them (contract 12): what stays of one, what goes, and how the rest is proven later.

Events and detail go: records, items, bodies, point rows, texts. What rollups rest on stays (``BASIS``), so that ownership, reprices and `verify`
go on over it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from turnledger.contract.canonical import dumps
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.fold import columns
from turnledger.fold.gaps import DECLARATIONS
from turnledger.fold.vacuumed import MOST_LATE
from turnledger.store.named import query
from turnledger.store.read import LedgerUnreadable, of_slot

Connection = psycopg.Connection[Any]
Row = dict[str, Any]

SLOTS = ("projection_a", "projection_b")
DETAIL = ("turn_records", *columns.POINT_TABLES)
"""Projected tables of which nothing stays."""


def _names(listed: Iterable[columns.Column], *without: str) -> tuple[str, ...]:
    return tuple(name for name, _ in listed if name not in without)


BASIS: dict[str, tuple[str, ...]] = {
    "turns": (*_names(columns.TURNS), "digest"),
    "model_calls": _names(columns.MODEL_CALLS),
    "tool_calls": _names(columns.TOOL_CALLS, "error_message"),
    "usage_parts": _names(columns.USAGE_PARTS),
    "session_facts": _names(columns.FACTS),
    "findings": ("check", "severity", "count", "rows"),
}
"""What rollups rest on, and stays: tables and columns that :func:`basis` hashes. Of findings those of the fold. No numbers of turns, which another
generation may give anew."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the ledger says of a vacuumed session."""

    events: int
    """That went, in all."""
    late: int
    """Of these: such as had come after the first vacuum."""
    last_batch: int
    """Number of the last vacuum: events of lower ones are gone."""
    basis: dict[str, Row]
    """{table: {columns, rows, sha256}} as :func:`basis` gave it."""
    open_gaps: int
    disputed_turns: frozenset[str]


def vacuumed_among(connection: Connection, sessions: Sequence[int]) -> set[int]:
    """Which of these sessions are vacuumed."""
    rows = connection.execute(query("vacuum/among"), {"sessions": list(sessions)})
    return {row[0] for row in rows}


def kept_of(connection: Connection, sessions: Sequence[int]) -> dict[int, Kept]:
    """The vacuumed ones among these sessions, by number."""
    return {
        row[0]: Kept(row[1], row[2], row[3], row[4], row[5], frozenset(row[6]))
        for row in connection.execute(query("vacuum/kept"), {"sessions": list(sessions)})
    }


def what_went(connection: Connection, session_no: int, name: str) -> str | None:
    """A sentence for a person who asks for what is gone; None where nothing is."""
    row = connection.execute(query("vacuum/last"), {"session_no": session_no}).fetchone()
    if row is None or row[0] is None:
        return None
    return (
        f"the {row[3]} events of session {name!r} were let go of on {row[0]} by {row[1]} ({row[2]}): its sums and turns stay, `turnledger sessions "
        "show` tells them, and `turnledger.archives` where events of its days are archived."
    )


def kept_declarations(connection: Connection, session_no: int) -> list[Event]:
    """A vacuumed session's declarations with their running times. Raises :class:`LedgerUnreadable`."""
    found = []
    for raw, running in connection.execute(query("vacuum/declarations"), {"session_no": session_no}):
        event = _read(raw, session_no)
        event.running = running
        found.append(event)
    return found


class Declared(NamedTuple):
    """A declaration, and where the ledger holds it."""

    event: Event
    stream_no: int
    seq: int
    """As in ``ledger.events``."""
    raw: bytes


def late_declarations(connection: Connection, session_no: int) -> list[Declared]:
    """Declarations in the ledger, without running times: where the session is vacuumed, those that came after."""
    found = []
    wanted = {"session_no": session_no, "types": sorted(DECLARATIONS)}
    for raw, offset, stream_no, seq in connection.execute(query("vacuum/late_declarations"), wanted):
        event = _read(raw, session_no)
        event.position = offset
        found.append(Declared(event, stream_no, seq, raw))
    return found


def late_events(connection: Connection, session_no: int, kept: Kept) -> tuple[list[Row], int]:
    """{producer, epoch, stream, seq, receipt_key} of the first events that came after the vacuum, and how many came in all."""
    row = connection.execute(query("vacuum/late_count"), {"session_no": session_no}).fetchone()
    assert row is not None
    rows: list[Row] = []
    if row[0]:
        wanted = {"session_no": session_no, "limit": MOST_LATE}
        for producer, epoch, stream, seq, raw in connection.execute(query("vacuum/late_events"), wanted):
            receipt_key = None if raw is None else _read(raw, session_no).receipt_key
            rows.append(
                {
                    "producer": producer,
                    "epoch": epoch,
                    "stream": stream,
                    "seq": seq,
                    "receipt_key": receipt_key,
                }
            )
    return rows, row[0] + kept.late


def _read(raw: bytes, session_no: int) -> Event:
    event = FastReader(limit=sys.maxsize).read(raw)
    if isinstance(event, Rejected):
        raise LedgerUnreadable(
            f"an event of session_no {session_no} was accepted once and is refused now ({event.reason}: {event.detail}): restore the "
            "ledger from a backup, or run the version that wrote it."
        )
    return event


def basis(
    connection: Connection, slot: str, session_no: int, listed: Mapping[str, Sequence[str]] = BASIS
) -> dict[str, Row]:
    """{table: {columns, rows, sha256}} of what stays of a session: the hash of its rows' canonical JSON, in no order but their own.

    ``connection`` loads instants as µs (``store.instants``).
    """
    found = {}
    for table, names in listed.items():
        statement = sql.SQL("select {} from {} where session_no = %s{}").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(slot, table),
            sql.SQL(" and source = 'fold'" if table == "findings" else ""),
        )
        with connection.cursor(binary=True) as cursor:
            cursor.execute(statement, (session_no,))
            rows = sorted(dumps([_plain(value) for value in row]) for row in cursor)
        digest = sha256(b"\n".join(rows)).hexdigest()
        found[table] = {"columns": list(names), "rows": len(rows), "sha256": digest}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return format(value, "f") if isinstance(value, Decimal) else value


def delete_detail(connection: Connection, session_no: int) -> None:
    """Take away what does not stay, in both generations."""
    for slot in SLOTS:
        for table in DETAIL:
            statement = of_slot("vacuum/delete", slot).replace(b"{table}", table.encode())
            connection.execute(statement, {"session_no": session_no})
        for name in ("vacuum/texts", "vacuum/overlays"):
            connection.execute(of_slot(name, slot), {"session_no": session_no})
    # A rebuild that read its events a moment ago writes detail again.
    connection.execute(query("replay/fill"), {"sessions": [session_no]})


def carry(connection: Connection, session_nos: Sequence[int], *, source: str, target: str) -> None:
    """Replace what the generation ``target`` holds of vacuumed sessions by what ``source`` does: no fold can make it any more.

    For whoever fills a generation from the ledger. In the caller's transaction; the rollups are left to the rollup worker.
    """
    numbers = list(session_nos)
    for table in BASIS:
        rows = connection.execute(
            "select column_name from information_schema.columns where table_schema = %s and table_name = %s and is_identity = 'NO' "
            "order by ordinal_position",
            (target, table),
        ).fetchall()
        listed = sql.SQL(", ").join(sql.Identifier(row[0]) for row in rows)
        fold = sql.SQL(" and source = 'fold'" if table == "findings" else "")
        connection.execute(
            sql.SQL("delete from {} where session_no = any(%s){}").format(
                sql.Identifier(target, table), fold
            ),
            (numbers,),
        )
        connection.execute(
            sql.SQL("insert into {} ({}) select {} from {} where session_no = any(%s){}").format(
                sql.Identifier(target, table), listed, listed, sql.Identifier(source, table), fold
            ),
            (numbers,),
        )
