"""One session, one transaction (design 5, steps 1 to 5): take its marks, decide its owners, set its rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum

import psycopg

from turnledger.fold.findings import grouped, redacted_at_ingest
from turnledger.fold.model import Row
from turnledger.fold.vacuumed import late_after_vacuum
from turnledger.rollup.blocks import basis_of, blocks_of, pieces_of, roll_up_blocks, turns_of, with_turns
from turnledger.rollup.claims import Linked, settle
from turnledger.rollup.prices import PriceSource, prices_of
from turnledger.rollup.rows import Loaded, Statements, load, put, remove


class Outcome(Enum):
    """What became of a session that had marks."""

    SET = "set"
    REMOVED = "removed"
    """Ingest has taken back all its rows."""
    BUSY = "busy"
    """Another worker has it, or prices are being published."""
    WAITS = "waits"
    """It is not due yet, or another worker has just done it."""


def roll_up_session(do: Statements, session_no: int, price: PriceSource, *, now: bool = False) -> Outcome:
    """Bring everything that follows from a session's projected rows up to them. Commits; after an exception nothing was done.

    ``now``: whether it is due or not. Raises what psycopg raises, and ``rows.Torn`` where ingest wrote in between (its mark is there).
    """
    began = time.monotonic()
    with do.connection.transaction():
        (state,) = do.rows("lock_session", session_no=session_no)
        if not state["locked"]:
            return Outcome.BUSY
        if state["waits"] and not now:
            return Outcome.WAITS
        marks = do.take_marks([session_no])
        if not marks:
            return Outcome.WAITS
        outcome = set_rows(do, session_no, marks, price)
        do.rolled_up([session_no], time.monotonic() - began)
    return outcome


def set_rows(do: Statements, session_no: int, marks: Sequence[Row], price: PriceSource) -> Outcome:
    """Bring a session's rows up to its projected ones, in the caller's transaction: read as little as the marks allow, and more where that does not
    do. All of a long session is read piece by piece."""
    moved, basis = blocks_of(marks), marks[0]["basis"]
    changed: set[bytes] = set()
    if moved is not None:
        outcome = _set(do, session_no, moved, basis, price, changed)
        if outcome is not None:
            return outcome
    pieces = pieces_of(do, session_no)
    if pieces is not None:
        basis = pieces.basis
        for blocks in pieces.blocks:
            of_piece: set[bytes] = set()
            outcome = _set(do, session_no, blocks, basis, price, of_piece)
            changed |= of_piece
            if outcome is not Outcome.SET:
                break
        else:
            return Outcome.SET
    outcome = _set(do, session_no, None, basis, price, changed)
    assert outcome is not None
    return outcome


def _set(
    do: Statements,
    session_no: int,
    moved: set[int] | None,
    basis: str | None,
    price: PriceSource,
    changed: set[bytes],
) -> Outcome | None:
    """The same from these blocks, or (None) from all at once. ``basis``: what the session's shares were made for, None where it has none;
    ``changed`` gathers as in ``claims.settle``. None: all is to be read."""
    while True:
        loaded = load(do, session_no, None if moved is None else turns_of(moved))
        if loaded is None:
            remove(do, session_no)
            return Outcome.REMOVED
        if moved is not None and (
            loaded.rows.conflicts or loaded.vacuumed or basis != basis_of(loaded.rows.facts)
        ):
            return None
        try:
            decision = settle(do, loaded, changed)
        except Linked as linked:
            moved = with_turns(moved, linked.turns)
            if moved is None:
                return None
            continue
        break
    tenant, session_id = loaded.rows.tenant, loaded.rows.session_id
    rollup = roll_up_blocks(
        do,
        loaded,
        moved,
        lambda call_key: decision.ownership.owner(session_id, call_key),
        prices_of(price, do.connection, loaded.prices),
        has_shares=basis is not None,
    )
    found = [row for _, row in decision.ownership.findings if row["check"] != "inherited_without_source"]
    found += [*rollup.findings, *_delivery(loaded)]
    put(do, loaded, rollup, grouped(tenant, session_id, found))
    if decision.concerned:
        do.mark_turns(dict(sorted(decision.concerned.items())))
    return Outcome.SET


def _delivery(loaded: Loaded) -> list[Row]:
    """Findings about how the session's records came, which no fold can know."""
    found = [{"check": "conflict", "severity": "error", "row": row} for row in loaded.conflicts]
    found += [{"check": "dead_letter", "severity": "error", "row": row} for row in loaded.dead_letters]
    found += redacted_at_ingest(loaded.redactions, loaded.redacted)
    found += late_after_vacuum(loaded.late, loaded.late_count)
    return found


TRANSIENT = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
"""Two workers met: the same session again, a little later."""
