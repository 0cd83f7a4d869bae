"""What SQL alone can prove over the whole ledger: batches and their chain (I2, I3), what each says against what is there (I1), orphans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from turnledger.contract.times import utc_text
from turnledger.doctor.faults import SHOWN, Fault
from turnledger.doctor.rows import Row
from turnledger.doctor.scope import Scope
from turnledger.store.named import query
from turnledger.store.read import of_slot

CHECKS: tuple[tuple[str, str], ...] = (
    ("i1_orphan_events", "events stand in a stream that is not there"),
    ("i1_orphan_streams", "a stream belongs to a session that is not there"),
    ("i1_batch_events", "a batch's accepted events are not those in the ledger"),
    ("i1_batch_dead", "a batch's dead letters are not those in the ledger"),
    ("i1_requeued", "a requeue's letters are not those that it counted"),
    ("i1_conflicts", "the conflicts that batches counted are not those in the receipts"),
    ("i1_dead_and_accepted", "a record ended as an event and as a dead letter"),
    ("i1_requeued_events", "a letter was requeued and accepted, and its event is not there"),
    ("i1_vacuums", "a session's vacuums are not what its streams lack"),
    ("i1_vacuumed_batches", "what was vacuumed is not what batches lack"),
    ("i2_sums", "a batch does not add up"),
    ("i2_accounts", "a partition's records are not what became of them by now"),
    ("i2_chain", "a batch does not begin where the one before it ended"),
    ("i2_ends", "a partition's batches do not span its offsets"),
    ("i3_order", "offsets or epochs of a partition went back"),
    ("i3_owner", "a partition's progress does not cover its batches"),
    ("i7_orphan_gaps", "a gap belongs to a stream that is not there"),
)
"""Named queries of ``store/sql/verify``, their invariant in front."""


def ledger_faults(connection: psycopg.Connection[Any], scope: Scope) -> Iterator[Fault]:
    """The faults of all of them, of the batches of ``scope``, in the caller's snapshot."""
    for name, what in CHECKS:
        invariant = name.partition("_")[0].upper()
        yield from weighed(
            invariant,
            what,
            read_rows(
                connection,
                query(f"verify/{name}"),
                {"limit": SHOWN, "floor": scope.floor, "day": scope.day},
            ),
        )


def weighed(invariant: str, what: str, rows: list[Row]) -> Iterator[Fault]:
    """The first rows of a question, each with how many there are (``faults``), as faults that count them all."""
    for left, row in zip(range(len(rows), 0, -1), rows, strict=True):
        total = row.pop("faults")
        yield Fault(invariant, what, row, 1 if left > 1 else max(1, total - len(rows) + 1))


def hourly_rows(connection: psycopg.Connection[Any], slot: str) -> tuple[list[Fault], bool]:
    """I5 of ``usage_hourly``: its faults, and whether some bucket waits for its worker."""
    rows = read_rows(connection, of_slot("verify/i5_hourly", slot), {"limit": 10 * SHOWN})
    waiting = [row.pop("pending") for row in rows]
    faults = []
    for row, waits in zip(rows, waiting, strict=True):
        row.pop("faults")
        if not waits:
            faults.append(Fault("I5", f"usage_hourly is not the sum of its parts ({row.pop('side')})", row))
    return faults, any(waiting)


def read_rows(connection: psycopg.Connection[Any], statement: bytes, parameters: Row) -> list[Row]:
    """Rows as dicts, instants as text. ``connection`` loads them as µs."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(statement, parameters)
        described = [
            (column.name, column.type_display == "timestamptz") for column in cursor.description or []
        ]
        return [
            {
                name: utc_text(value) if instant and value is not None else value
                for (name, instant), value in zip(described, row, strict=True)
            }
            for row in cursor
        ]
