"""The determinism audit (design 6): random sessions folded anew and held against what readers see. One that differs becomes a finding."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass

import psycopg

from turnledger.doctor.faults import Fault
from turnledger.doctor.held import load_streams, read_events
from turnledger.doctor.refold import load_projection, projection_faults
from turnledger.errors import TurnledgerError
from turnledger.fold.session import fold_session
from turnledger.replay.compare import Unwritten, unsettled
from turnledger.replay.generation import Connection
from turnledger.store.instants import load_as_microseconds
from turnledger.store.named import query
from turnledger.store.read import SessionRef, of_slot, writable_slot

AT_ONCE = 20
"""Sessions in one snapshot."""
ROWS = 20
"""Faults of one session that its finding lists; the count is exact."""
LOOK_AGAIN_SECONDS = 1.0
_RATE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)(%?)")


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found."""

    sessions: int
    events: int
    differing: list[tuple[SessionRef, int]]
    """Each with how many of its rows are not what its events say."""
    unsettled: int
    """Sessions that a worker had still to write, for all the time that was waited."""


def parse_rate(text: str) -> float:
    """``0.1%`` or ``0.001`` as a share. Raises ``TurnledgerError``."""
    found = _RATE.fullmatch(text.strip())
    rate = 0.0 if found is None else float(found[1]) / (100 if found[2] else 1)
    if not 0 < rate <= 1:
        raise TurnledgerError(f"--rate {text!r} is no share: give one above 0% up to 100%, for example 0.1%.")
    return rate


def audit(connection: Connection, rate: float, *, by: str, settle_seconds: float) -> Audited:
    """Fold a share of all sessions anew, compare, write findings down. ``connection`` is in autocommit mode.

    Raises ``OtherFold`` where readers see what another version of the fold has filled, ``LedgerUnreadable``.
    """
    load_as_microseconds(connection)
    slot = writable_slot(connection)
    waiting = [SessionRef(*row) for row in connection.execute(query("replay/sample"), {"rate": rate})]
    chosen = len(waiting)
    events = 0
    differing: list[tuple[SessionRef, int]] = []
    until = time.monotonic() + settle_seconds
    while waiting:
        left: list[SessionRef] = []
        for start in range(0, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            found, unwritten, seen = _look(connection, slot, some)
            events += seen
            left += [ref for ref in some if ref.session_no in unwritten]
            differing += _written_down(connection, slot, found)
        waiting = left
        if not waiting or time.monotonic() >= until:
            break
        time.sleep(LOOK_AGAIN_SECONDS)
    connection.execute(
        query("replay/audit"),
        {
            "generation": slot[-1],
            "rate": rate,
            "sessions": chosen,
            "differing": len(differing),
            "unsettled": len(waiting),
            "by": by,
        },
    )
    return Audited(chosen, events, differing, len(waiting))


def _look(
    connection: Connection, slot: str, refs: list[SessionRef]
) -> tuple[dict[SessionRef, list[Fault]], set[int], int]:
    """(faults of those that can be judged, those that cannot, events read), all in one snapshot."""
    numbers = [ref.session_no for ref in refs]
    previous = connection.isolation_level
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    events = 0
    try:
        with connection.transaction():
            row = connection.execute(query("verify/unflushed")).fetchone()
            batches, day = (row[0] or [], row[1]) if row is not None else ([], None)
            moved: set[int] = set()
            if day is not None:
                moved, _ = unsettled(connection, numbers, Unwritten(batches, day))
            streams = load_streams(connection, numbers)
            stored = load_projection(connection, slot, numbers)
            found: dict[SessionRef, list[Fault]] = {}
            for ref in refs:
                if ref.session_no in moved:
                    continue
                held, faults = read_events(connection, ref, streams[ref.session_no])
                events += len(held)
                if not faults:
                    fold = fold_session(ref.tenant, ref.session_id, [one.event for one in held])
                    faults = projection_faults(ref, fold, held, stored)
                if (
                    faults
                    and connection.execute(
                        query("replay/refusals"), {"tenant": ref.tenant, "session_id": ref.session_id}
                    ).fetchone()
                ):
                    # What Postgres refused stands in a dead letter, and not here.
                    faults = [fault for fault in faults if not fault.what.endswith("lacks a row")]
                found[ref] = faults
    finally:
        connection.isolation_level = previous
    return found, moved, events


def _written_down(
    connection: Connection, slot: str, found: dict[SessionRef, list[Fault]]
) -> list[tuple[SessionRef, int]]:
    """Findings of those that differ; of those that do not any more, none."""
    differing = []
    with connection.transaction():
        connection.execute(
            of_slot("replay/clear_audited", slot), {"sessions": [ref.session_no for ref in found]}
        )
        for ref, faults in found.items():
            if not faults:
                continue
            rows = [{"what": fault.what, **fault.row} for fault in faults[:ROWS]]
            connection.execute(
                of_slot("replay/audited", slot),
                {
                    "session_no": ref.session_no,
                    "count": len(faults),
                    "rows": json.dumps(rows, default=str),
                },
            )
            differing.append((ref, len(faults)))
    return differing
