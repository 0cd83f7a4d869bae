"""`turnledger verify`: proves the invariants I1 to I5 and I7 on a database (design 9), session by session, in bounded memory.

Writes nothing. What a worker has still to write is no fault: such sessions are looked at again until they settle.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from turnledger.contract.times import utc_text
from turnledger.doctor.faults import SHOWN, Fault, Report
from turnledger.doctor.refold import (
    TWICE,
    StoredProjection,
    StoredStream,
    events_faults,
    gap_faults,
    load_projection,
    load_streams,
    projection_faults,
)
from turnledger.doctor.resum import (
    Families,
    StoredRollup,
    decide_stored,
    families,
    load_rollup,
    rollup_faults,
)
from turnledger.doctor.rows import Row
from turnledger.fold.ownership import Ownership
from turnledger.fold.rollup import PriceFunction
from turnledger.fold.session import fold_session
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot, stored_events

PAGE = 25
"""Sessions whose stored rows are in memory at once; events and folds are there for one session at a time."""
LOOK_AGAIN_SECONDS = 0.5

_LEDGER_CHECKS: tuple[tuple[str, str], ...] = (
    ("i1_orphan_events", "events stand in a stream that is not there"),
    ("i1_orphan_streams", "a stream belongs to a session that is not there"),
    ("i1_batch_events", "a batch's accepted events are not those in the ledger"),
    ("i1_batch_dead", "a batch's dead letters are not those in the ledger"),
    ("i1_conflicts", "the conflicts that batches counted are not those in the receipts"),
    ("i1_dead_and_accepted", "a record ended as an event and as a dead letter"),
    ("i2_sums", "a batch does not add up"),
    ("i2_chain", "a batch does not begin where the one before it ended"),
    ("i2_ends", "a partition's batches do not span its offsets"),
    ("i3_order", "offsets or epochs of a partition went back"),
    ("i3_owner", "a partition's progress does not cover its batches"),
    ("i7_orphan_gaps", "a gap belongs to a stream that is not there"),
)


def verify(
    database_url: str,
    price: PriceFunction,
    *,
    settle_seconds: float = 10.0,
    progress: Callable[[int], None] = lambda sessions: None,
) -> Report:
    """Prove the invariants. ``progress`` hears how many sessions were looked at.

    Sessions that differ while a worker has still to write them are looked at again for ``settle_seconds``, then listed as ``unsettled``.
    Raises ``DatabaseAway``.
    """
    with connect(database_url, "verify", statement_seconds=0, idle_seconds=0, lock_seconds=5) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        return verify_on(connection, price, settle_seconds=settle_seconds, progress=progress)


def verify_on(
    connection: psycopg.Connection[Any],
    price: PriceFunction,
    *,
    settle_seconds: float = 10.0,
    progress: Callable[[int], None] = lambda sessions: None,
) -> Report:
    """The same on a connection: in its transaction where it is in one, else in short ones, which should be REPEATABLE READ."""
    load_as_microseconds(connection)
    return _Verifier(connection, price, progress).run(settle_seconds)


@dataclass(slots=True)
class _Stored:
    """What one snapshot holds of some sessions, but their events."""

    streams: dict[int, list[StoredStream]]
    projection: StoredProjection
    rollup: StoredRollup
    conflicts: dict[int, list[Row]]
    letters: dict[int, list[Row]]


class _Verifier:
    def __init__(
        self, connection: psycopg.Connection[Any], price: PriceFunction, progress: Callable[[int], None]
    ) -> None:
        self.connection = connection
        self.price = price
        self.progress = progress
        self.report = Report()
        self.waiting: dict[int, str] = {}
        """Sessions to look at again, with their names."""
        self.refused = 0

    def run(self, settle_seconds: float) -> Report:
        with self.connection.transaction():
            self.ledger()
            kin = families(self.connection, active_slot(self.connection))
        self.first_pass(kin)
        until = time.monotonic() + settle_seconds
        while time.monotonic() < until and (self.waiting or self.hours(final=False)):
            time.sleep(min(LOOK_AGAIN_SECONDS, max(0.0, until - time.monotonic())))
            self.look_again(all_of_them=False)
        # A busy session is written all the time, and right in between: so those that never settled are looked at once more.
        self.look_again(all_of_them=True)
        hours_wait = self.hours(final=True)
        self.report.unsettled = sorted(self.waiting.values())
        if hours_wait and not self.waiting:
            self.report.unsettled = ["usage_hourly"]
        if self.refused:
            self.report.notes.append(
                f"{self.refused} sessions have rows that Postgres refused (dead letters `refused_by_database`): their events are in the "
                "ledger, those rows are not in the projection"
            )
        return self.report

    def ledger(self) -> None:
        """What SQL alone can prove, over the whole ledger, in the caller's snapshot."""
        for name, what in _LEDGER_CHECKS:
            invariant = name.partition("_")[0].upper()
            self.report.add(
                Fault(invariant, what, row) for row in self.rows(query(f"verify/{name}"), {"limit": SHOWN})
            )

    def first_pass(self, kin: Families) -> None:
        """Every session once: those alone in pages, families whole."""
        after = 0
        while True:
            with self.connection.transaction():
                page = self.page(query("verify/sessions_after"), {"after": after, "limit": PAGE})
                if not page:
                    break
                after = page[-1].session_no
                self.look([ref for ref in page if ref.session_no not in kin], first=True)
        for numbers in kin.groups():
            with self.connection.transaction():
                self.look_at_family(numbers, first=True)

    def look_again(self, *, all_of_them: bool) -> None:
        """The sessions that were waiting, if not all of them then those that nobody has still to write."""
        with self.connection.transaction():
            again = set(self.waiting)
            if not all_of_them:
                again -= self.pending(list(again))
            if not again:
                return
            for number in again:
                del self.waiting[number]
            kin = families(self.connection, active_slot(self.connection))
            alone = self.named(number for number in again if number not in kin)
            for start in range(0, len(alone), PAGE):
                self.look(alone[start : start + PAGE], first=False)
            roots = {kin.root(number) for number in again if number in kin}
            for numbers in kin.groups():
                if kin.root(numbers[0]) in roots:
                    self.look_at_family(numbers, first=False, only=again)

    def look_at_family(self, numbers: Sequence[int], *, first: bool, only: set[int] | None = None) -> None:
        refs = self.named(numbers)
        slot = active_slot(self.connection)
        ownership = decide_stored(self.connection, slot, refs)
        pending = bool(self.pending([ref.session_no for ref in refs]))
        looked = [ref for ref in refs if only is None or ref.session_no in only]
        for start in range(0, len(looked), PAGE):
            self.look(looked[start : start + PAGE], first=first, ownership=ownership, pending_kin=pending)

    def look(
        self,
        refs: Sequence[SessionRef],
        *,
        first: bool,
        ownership: Ownership | None = None,
        pending_kin: bool = False,
    ) -> None:
        """Prove I1, I4, I5 and I7 of some sessions, all from the caller's snapshot."""
        if not refs:
            return
        connection = self.connection
        numbers = [ref.session_no for ref in refs]
        slot = active_slot(connection)
        streams = load_streams(connection, numbers)
        projection = load_projection(connection, slot, numbers)
        rollup = load_rollup(connection, slot, numbers)
        pending = self.pending(numbers)
        conflicts = self.by_session(query("verify/conflicts"), numbers)
        letters = self.by_session(query("verify/dead_letters"), numbers)
        stored = _Stored(streams, projection, rollup, conflicts, letters)
        for ref in refs:
            number = ref.session_no
            owners = ownership or decide_stored(connection, slot, [ref])
            faults = self.faults_of(ref, stored, owners, first=first)
            if any(letter["reason"] == "refused_by_database" for letter in letters[number]):
                lacking = [
                    fault
                    for fault in faults
                    if fault.invariant == "I4" and fault.what.endswith("lacks a row")
                ]
                self.refused += bool(lacking)
                faults = [fault for fault in faults if fault not in lacking]
            unfinished = {"I4", "I5", "I7"} if number in pending else {"I5"} if pending_kin else set()
            if any(fault.invariant in unfinished for fault in faults):
                self.waiting[number] = f"{ref.tenant}/{ref.session_id}"
                faults = [fault for fault in faults if fault.invariant not in unfinished]
            # What the first look told of the ledger itself, a second one would tell twice.
            self.report.add(fault for fault in faults if first or fault.invariant != "I1")
            self.progress(self.report.sessions)

    def faults_of(
        self, ref: SessionRef, stored: _Stored, ownership: Ownership, *, first: bool
    ) -> list[Fault]:
        number = ref.session_no
        streams = stored.streams.get(number, [])
        events = stored_events(self.connection, number)
        if first:
            self.report.sessions += 1
            self.report.events += len(events)
        faults = events_faults(ref, streams, events)
        if any(fault.what == TWICE for fault in faults):
            # A fold takes each identity once; what it would say of these follows from this fault.
            return faults
        fold = fold_session(ref.tenant, ref.session_id, [one.event for one in events])
        if first:
            self.report.turns += len(fold.turns)
        faults += projection_faults(ref, fold, events, stored.projection)
        faults += gap_faults(ref, fold, streams)
        faults += rollup_faults(
            ref,
            fold,
            conflicts=stored.conflicts[number],
            dead_letters=stored.letters[number],
            ownership=ownership,
            price=self.price,
            turn_numbers={row["turn_key"]: row["turn_no"] for row in stored.projection.of("turns", number)},
            stored=stored.rollup,
        )
        return faults

    def hours(self, *, final: bool) -> bool:
        """I5 of usage_hourly; true while a bucket waits for its worker. Faults are told in the final look alone."""
        with self.connection.transaction():
            slot = active_slot(self.connection)
            rows = self.rows(of_slot("verify/i5_hourly", slot), {"limit": 10 * SHOWN})
        waiting = [row for row in rows if row.pop("pending")]
        if final:
            self.report.add(
                Fault("I5", f"usage_hourly is not the sum of its parts ({row.pop('side')})", row)
                for row in rows
                if row not in waiting
            )
        return bool(waiting)

    # ---- reading ---------------------------------------------------------------------------------------------------------------

    def rows(self, statement: bytes, parameters: Row) -> list[Row]:
        with self.connection.cursor(binary=True) as cursor:
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

    def by_session(self, statement: bytes, sessions: Sequence[int]) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows(statement, {"sessions": list(sessions)}):
            found[row.pop("session_no")].append(row)
        return found

    def page(self, statement: bytes, parameters: Row) -> list[SessionRef]:
        return [SessionRef(*row) for row in self.connection.execute(statement, parameters)]

    def named(self, numbers: Iterable[int]) -> list[SessionRef]:
        return self.page(query("verify/sessions_named"), {"sessions": list(numbers)})

    def pending(self, numbers: Sequence[int]) -> set[int]:
        """Those that a worker has still to write."""
        found = self.connection.execute(query("verify/pending"), {"sessions": list(numbers)})
        return {session_no for session_no, unflushed, marked in found if unflushed or marked}
