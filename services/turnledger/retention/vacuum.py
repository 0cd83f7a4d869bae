"""Lets go of one session's events and detail (contract 12), in one transaction: what stays can be proven afterwards, and comes late is known.

A session is proven first: nobody takes away the evidence of a number that is not what its events give. That reading and folding holds no lock;
the transaction that follows holds the progress row of the session's home, as every writer of it does (design 3.2), and looks whether anything came.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from turnledger.contract.event import Event
from turnledger.doctor.held import StoredStream, conflict_faults, events_faults, load_streams, read_events
from turnledger.doctor.refold import gap_faults, load_projection, projection_faults
from turnledger.doctor.rows import told
from turnledger.fold.document import session_rows
from turnledger.fold.order import ordered
from turnledger.fold.session import fold_session
from turnledger.fold.vacuumed import in_order
from turnledger.ingest import load
from turnledger.store import vacuumed
from turnledger.store.connect import look_keys_up
from turnledger.store.instants import load_as_microseconds
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot
from turnledger.store.vacuumed import Declared

ATTEMPTS = 5
PAUSE_SECONDS = 0.2
TRANSIENT = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Order:
    """Who says so, and why."""

    by: str
    why: str
    run_no: int | None = None
    archived: bool = False
    """Only where an archive holds what goes."""


@dataclass(frozen=True, slots=True)
class Went:
    """What was let go of."""

    events: int
    bytes: int
    late: bool
    """It had gone before: these came after."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Why a session was left alone, as a sentence without a stop."""

    why: str


@dataclass(slots=True)
class _Proven:
    """What was read of a session, and holds."""

    events: int
    last_batch: int
    declarations: list[Declared]
    disputed: list[str]
    turns: int


class _Moved(Exception):
    """Something came between the proof and the lock."""


def is_persistent(events: Sequence[Event]) -> bool:
    """Whether a session says that it is to stay: the last start or resumption in order that says anything about it."""
    said = [
        event.payload["persistent"]
        for event in ordered(
            event for event in events if event.type in ("session.started", "session.resumed")
        )
        if isinstance(event.payload.get("persistent"), bool)
    ]
    return bool(said) and bool(said[-1])


def vacuum(connection: Connection, ref: SessionRef, order: Order) -> Went | Stays:
    """Let go of a session. ``connection`` is in autocommit mode. Raises what psycopg raises: then nothing was done to it."""
    load_as_microseconds(connection)
    look_keys_up(connection)
    pause = PAUSE_SECONDS
    last = "others write it all the time: it is tried again with the next run"
    for _ in range(ATTEMPTS):
        try:
            if vacuumed.vacuumed_among(connection, [ref.session_no]):
                with connection.transaction():
                    return _take_late(connection, ref, order)
            proven = _prove(connection, ref, order)
            if isinstance(proven, Stays):
                return proven
            with connection.transaction():
                return _take(connection, ref, order, proven)
        except (_Moved, *TRANSIENT):
            time.sleep(pause)
            pause *= 2
    return Stays(last)


def foresee(connection: Connection, ref: SessionRef, order: Order) -> Went | Stays:
    """What :func:`vacuum` would do now, and nothing is done: the session is read, folded and compared. ``connection`` is in autocommit mode."""
    load_as_microseconds(connection)
    number = ref.session_no
    if vacuumed.vacuumed_among(connection, [number]):
        events, size = _one(connection, "vacuum/size", number)
        return _stays_late(connection, number, order, events) or Went(events, size, late=True)
    proven = _prove(connection, ref, order)
    if isinstance(proven, Stays):
        return proven
    return Went(proven.events, _one(connection, "vacuum/size", number)[1], late=False)


def _prove(connection: Connection, ref: SessionRef, order: Order) -> _Proven | Stays:
    """Read and fold the session as it is, and compare what is stored."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        number = ref.session_no
        if _one(connection, "vacuum/unflushed", number)[0]:
            return Stays("a worker has still to write it")
        streams = load_streams(connection, [number])[number]
        events, faults = read_events(connection, ref, streams)
        if not events and not faults:
            return Stays("nothing of it is in the ledger")
        faults += events_faults(ref, streams, events) if not faults else []
        if not faults:
            by_number: dict[int, StoredStream] = {one.stream_no: one for one in streams}
            faults += [fault for _, fault in conflict_faults(connection, {number: ref}, by_number)]
        fold = fold_session(ref.tenant, ref.session_id, [one.event for one in events])
        if fold.facts["status"] == "running":
            return Stays("it is running")
        if is_persistent([one.event for one in events]):
            return Stays("it is persistent")
        if _one(connection, "vacuum/unsent", number)[0]:
            return Stays("turn records of it are still to be sent: `turnledger outbox` sends them")
        if order.archived:
            lacking = [row[0] for row in _rows(connection, "retention/unarchived", number)]
            if lacking:
                days = ", ".join(day.isoformat() for day in lacking[:3])
                return Stays(f"no archive holds what came on {days}: `turnledger archive` writes it")
        if not faults:
            faults += projection_faults(
                ref, fold, events, load_projection(connection, active_slot(connection), [number])
            )
            faults += gap_faults(ref, fold.gaps, streams)
        if faults:
            return Stays(
                f"{len(faults)} of its rows are not what its events give ({faults[0].what}): `turnledger verify --session` tells more"
            )
        conflicts = told(connection, query("verify/conflicts"), {"sessions": [number]})
        # The fold has set the running times of its events.
        places = {(one.stream_no, one.seq): one.event.running for one in events}
        declared = vacuumed.late_declarations(connection, number)
        for one in declared:
            one.event.running = places[one.stream_no, one.seq]
        return _Proven(
            events=len(events),
            last_batch=_one(connection, "vacuum/last_batch", number)[0],
            declarations=declared,
            disputed=sorted(session_rows(fold, conflicts, 0).disputed_turns),
            turns=len(fold.turns),
        )


def _lock(connection: Connection, number: int) -> tuple[int, int | None, date | None, date | None]:
    """Hold what every writer of the session holds, and who rolls it up. (events, last batch, first day, last day) as they are from now on."""
    home = _one(connection, "vacuum/home", number)
    connection.execute(query("fence/lock"), {"topics": [home[0]], "partitions": [home[1]]})
    if not _one(connection, "vacuum/lock_rollup", number)[0]:
        raise _Moved
    first, last, events = _one(connection, "vacuum/days", number)
    return events, _one(connection, "vacuum/last_batch", number)[0], first, last


def _take(connection: Connection, ref: SessionRef, order: Order, proven: _Proven) -> Went:
    number = ref.session_no
    events, last_batch, first_day, last_day = _lock(connection, number)
    if (events, last_batch) != (proven.events, proven.last_batch) or _one(
        connection, "vacuum/unflushed", number
    )[0]:
        raise _Moved
    if _one(connection, "vacuum/unsent", number)[0]:
        raise _Moved
    slot = active_slot(connection)
    _write_streams(connection, number, slot)
    basis = vacuumed.basis(connection, slot, number)
    open_gaps = connection.execute(query("rollup/open_gaps"), {"session_no": number}).fetchone()
    assert open_gaps is not None
    _keep(connection, number, proven.declarations)
    return _let_go(
        connection,
        number,
        order,
        (first_day, last_day),
        turns=proven.turns,
        basis=basis,
        open_gaps=open_gaps[0],
        disputed=proven.disputed,
    )


def _take_late(connection: Connection, ref: SessionRef, order: Order) -> Went | Stays:
    """What came after the session went: declarations among it are kept, everything else is counted."""
    number = ref.session_no
    events, _, first_day, last_day = _lock(connection, number)
    stays = _stays_late(connection, number, order, events)
    if stays is not None:
        return stays
    _write_streams(connection, number, active_slot(connection))
    kept = vacuumed.kept_declarations(connection, number)
    late = vacuumed.late_declarations(connection, number)
    in_order(kept, [one.event for one in late])
    _keep(connection, number, late)
    return _let_go(connection, number, order, (first_day, last_day), late=True)


def _stays_late(connection: Connection, number: int, order: Order, events: int) -> Stays | None:
    """Why the ``events`` that came after the session went stay; None where they may go."""
    if not events:
        return Stays("it is vacuumed, and nothing came since")
    if order.archived and _rows(connection, "retention/unarchived", number):
        return Stays("no archive holds what came late: `turnledger archive` writes it")
    return None


def _keep(connection: Connection, number: int, declared: Sequence[Declared]) -> None:
    connection.execute(
        query("vacuum/keep"),
        {
            "session_no": number,
            "streams": [one.stream_no for one in declared],
            "seqs": [one.seq for one in declared],
            "runnings": [one.event.running for one in declared],
            "raws": [one.raw for one in declared],
        },
    )


def _let_go(
    connection: Connection,
    number: int,
    order: Order,
    days: tuple[date | None, date | None],
    *,
    late: bool = False,
    turns: int | None = None,
    basis: dict[str, vacuumed.Row] | None = None,
    open_gaps: int | None = None,
    disputed: list[str] | None = None,
) -> Went:
    batch_no = connection.execute(query("vacuum/batch_number")).fetchone()
    gone = connection.execute(
        query("vacuum/take"), {"session_no": number, "first_day": days[0], "last_day": days[1]}
    ).fetchone()
    assert batch_no is not None and gone is not None
    events, size, by_day = gone[:3]
    connection.execute(
        query("vacuum/note"),
        {
            "batch_no": batch_no[0],
            "session_no": number,
            "events": events,
            "late": events if late else 0,
            "event_bytes": size,
            "days": Jsonb(by_day),
            "turns": turns,
            "basis": None if basis is None else Jsonb(basis),
            "open_gaps": open_gaps,
            "disputed_turns": disputed,
            "run_no": order.run_no,
            "by": order.by,
            "why": order.why,
        },
    )
    if not late:
        vacuumed.delete_detail(connection, number)
    connection.execute(query("vacuum/disturb"), {"session_no": number})
    connection.execute(query("rollup/mark"), {"sessions": [number]})
    return Went(events, size, late)


def _write_streams(connection: Connection, number: int, slot: str) -> None:
    """Rows of streams that are merely extended are written late: from now on no event tells their greatest number any more."""
    (entry,) = load.load(connection, load.find_numbers(connection, [number]), slot, states=False)
    rows = [(stream.stream_no, *stream.state()) for stream in entry.streams.values()]
    if rows:
        names = ("streams", "lows", "his", "holes", "receipts", "open_gaps")
        connection.execute(
            query("vacuum/streams"), dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        )


def _one(connection: Connection, name: str, number: int) -> tuple[Any, ...]:
    row = connection.execute(query(name), {"session_no": number}).fetchone()
    assert row is not None
    return tuple(row)


def _rows(connection: Connection, name: str, number: int) -> list[tuple[Any, ...]]:
    return connection.execute(query(name), {"session_no": number}).fetchall()
