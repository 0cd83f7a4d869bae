"""One session, one transaction (design 5, steps 1 to 5): take its marks, decide its owners, set its rows."""

from __future__ import annotations

import time
from enum import Enum

import psycopg

from turnledger.fold.findings import grouped, redacted_at_ingest
from turnledger.fold.model import Row
from turnledger.fold.rollup import PriceFunction, roll_up
from turnledger.fold.vacuumed import late_after_vacuum
from turnledger.rollup.claims import settle
from turnledger.rollup.prices import PriceSource, prices_of
from turnledger.rollup.rows import Loaded, Statements, load, put, remove

LEAST_PAUSE_SECONDS = 1.0
PAUSE_FACTOR = 10
"""A session is due again after 10 times what its last roll-up took: a busy one takes at most a tenth of a worker (design 5)."""


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
        if not do.take_marks(session_no):
            return Outcome.WAITS
        loaded = load(do, session_no)
        if loaded is None:
            remove(do, session_no)
        else:
            _set(do, loaded, prices_of(price, do.connection, loaded.prices))
        took = time.monotonic() - began
        do.run(
            "due",
            session_no=session_no,
            seconds=max(LEAST_PAUSE_SECONDS, PAUSE_FACTOR * took),
            took_ms=round(took * 1000),
        )
    return Outcome.REMOVED if loaded is None else Outcome.SET


def _set(do: Statements, loaded: Loaded, price: PriceFunction) -> None:
    decision = settle(do, loaded)
    tenant, session_id = loaded.rows.tenant, loaded.rows.session_id
    rollup = roll_up(loaded.rows, lambda call_key: decision.ownership.owner(session_id, call_key), price)
    found = [finding for _, finding in decision.ownership.findings]
    found += [*rollup.findings, *_delivery(loaded)]
    put(do, loaded, rollup, grouped(tenant, session_id, found))
    if decision.concerned:
        do.run("mark", sessions=sorted(decision.concerned))


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
