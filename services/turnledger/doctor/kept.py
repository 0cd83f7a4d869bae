"""Invariants of a vacuumed session (contract 12): what was kept is what it was (I4), its sums follow from it (I5), its gaps from what was seen (I7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from turnledger.doctor.faults import Fault
from turnledger.doctor.held import HeldEvent, StoredStream
from turnledger.doctor.refold import StoredProjection, gap_faults
from turnledger.doctor.rows import Row
from turnledger.fold.model import StreamKey
from turnledger.fold.rollup import SessionRows
from turnledger.fold.seen import StreamSeen
from turnledger.fold.vacuumed import gaps_after_vacuum, kept_declarations
from turnledger.store import vacuumed
from turnledger.store.read import SessionRef
from turnledger.store.vacuumed import DETAIL, Kept

Connection = psycopg.Connection[Any]


def kept_rows_faults(
    connection: Connection, slot: str, ref: SessionRef, kept: Kept, stored: StoredProjection
) -> list[Fault]:
    """I4: the rows that stay are those that there were when the events went, and no detail is left."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    listed = {table: one["columns"] for table, one in kept.basis.items()}
    found = vacuumed.basis(connection, slot, ref.session_no, listed)
    faults = [
        Fault(
            "I4",
            "rows of a vacuumed session are not those that were kept",
            {**named, "table": table, "kept": one["rows"], "stored": found[table]["rows"]},
        )
        for table, one in kept.basis.items()
        if found[table] != one
    ]
    for table in DETAIL:
        rows = len(stored.of(table, ref.session_no))
        if rows:
            row = {**named, "table": table, "rows": rows}
            faults.append(Fault("I4", "a vacuumed session has detail left", row))
    return faults


def kept_gap_faults(
    connection: Connection, ref: SessionRef, streams: Sequence[StoredStream], events: Sequence[HeldEvent]
) -> list[Fault]:
    """I7: holes of a vacuumed session, from the declarations that were kept and came since. ``events``: those that came since."""
    late: dict[int, int] = {}
    for _, stream_no, seq, _ in events:
        late[stream_no] = max(seq, late.get(stream_no, -1))
    seen: dict[StreamKey, StreamSeen] = {}
    known: list[StreamKey] = []
    for one in streams:
        numbers = StreamSeen(max(one.hi, late.get(one.stream_no, -1)), one.chunks)
        if numbers.hi >= 0:
            seen[one.key] = numbers
        if numbers.hi >= 0 or one.receipts:
            known.append(one.key)
    gaps = gaps_after_vacuum(
        vacuumed.kept_declarations(connection, ref.session_no),
        kept_declarations(one.event for one in events),
        seen,
        known,
    )
    return gap_faults(ref, gaps.rows, streams)


def kept_session_rows(
    ref: SessionRef, kept: Kept, stored: StoredProjection, *, conflicts: int, dead_letters: int
) -> SessionRows:
    """What the rollups of a vacuumed session are made from."""
    number = ref.session_no
    findings: list[Row] = stored.of("findings", number)
    return SessionRows(
        tenant=ref.tenant,
        session_id=ref.session_id,
        facts=stored.of("session_facts", number)[0],
        turns=stored.of("turns", number),
        calls=stored.of("model_calls", number),
        tools=stored.of("tool_calls", number),
        contributions=stored.of("usage_parts", number),
        loose_checks=frozenset(row["check"] for row in findings if row["turn_no"] is None),
        open_gaps=kept.open_gaps,
        conflicts=conflicts,
        dead_letters=dead_letters,
        disputed_turns=kept.disputed_turns,
        detail="vacuumed",
    )
