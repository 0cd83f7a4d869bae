"""`turnledger verify`: proves the invariants I1 to I5 and I7 on a database (design 9), session by session, in bounded memory.

Writes nothing. What a worker has still to write is no fault: such sessions are looked at again until they settle. Snapshots are short, one
for each page of sessions: a long one would make every update of a progress row slower (design 4).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import psycopg

from turnledger.doctor import long
from turnledger.doctor.audit import hourly_rows, ledger_faults, read_rows
from turnledger.doctor.faults import INVARIANTS, SHOWN, Fault, Report
from turnledger.doctor.held import (
    TWICE,
    UNREADABLE,
    HeldEvent,
    StoredEvent,
    StoredStream,
    as_events,
    conflict_faults,
    events_faults,
    load_streams,
    stored_events,
)
from turnledger.doctor.kept import kept_gap_faults, kept_rows_faults, kept_session_rows
from turnledger.doctor.refold import (
    StoredProjection,
    ask_projection,
    gap_faults,
    load_projection,
    projection_faults,
)
from turnledger.doctor.reread import reread
from turnledger.doctor.resum import (
    Families,
    StoredRollup,
    ask_rollup,
    decide_alone,
    decide_long_alone,
    decide_stored,
    families,
    kept_faults,
    load_rollup,
    rollup_faults,
)
from turnledger.doctor.rows import Row
from turnledger.doctor.scope import Scope, SortedNumbers, one_session, what_came_since
from turnledger.fold.findings import MOST_REDACTIONS
from turnledger.fold.ownership import Ownership
from turnledger.fold.rollup import PriceFunction
from turnledger.fold.session import fold_session
from turnledger.fold.state import NeedsHistory
from turnledger.fold.vacuumed import late_after_vacuum
from turnledger.rollup.prices import PriceSource, prices_of
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot
from turnledger.store.vacuumed import Kept, kept_of, late_events

PAGE = 100
"""Sessions whose rows are in memory at once, at most; folds are there for one session at a time. One at a time costs thirty questions each."""
PAGE_EVENTS = 5000
"""A page ends at about so many events, if it has a session."""
LOOK_AGAIN_SECONDS = 0.5
AT_ONCE = 500
"""Sessions that are looked at again in one snapshot."""
SUSPECTS = 1000
"""So many sessions whose sums are wrong get a second look before the first one counts."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Topics:
    """How Kafka is read again."""

    bootstrap: str
    record_limit: int
    """Bytes; as the worker has it."""
    progress: Progress = lambda records: None
    """Hears how many records were read."""

    def read(self, connection: psycopg.Connection[Any], report: Report, scope: Scope) -> None:
        """Add to ``report`` what differs. Raises ``BrokerAway``."""
        reread(
            connection, self.bootstrap, report, scope, record_limit=self.record_limit, progress=self.progress
        )


def verify(
    database_url: str,
    price: PriceSource,
    *,
    session: str | None = None,
    tenant: str | None = None,
    since: int | None = None,
    topics: Topics | None = None,
    settle_seconds: float = 10.0,
    progress: Progress = lambda sessions: None,
) -> Report:
    """Prove the invariants. ``progress`` hears how many sessions were looked at.

    ``session``: of one session alone (an id, ``tenant/session_id``, or a name). ``since`` (µs since 1970): of what came in since then.
    ``topics``: proves I1 against Kafka too.
    Sessions that differ while a worker has still to write them are looked at again for ``settle_seconds``, then listed as ``unsettled``.
    Raises ``DatabaseAway``, ``NoSuchSession`` and ``BrokerAway``.
    """
    with connect(database_url, "verify", statement_seconds=0, idle_seconds=0, lock_seconds=5) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            scope = scope_of(connection, session, tenant, since)
        report = verify_on(connection, price, scope, settle_seconds=settle_seconds, progress=progress)
        if topics is None:
            report.not_checked.append("the ledger against the records of Kafka: --topics reads them again")
        else:
            topics.read(connection, report, scope)
    return report


def scope_of(
    connection: psycopg.Connection[Any], session: str | None, tenant: str | None, since: int | None
) -> Scope:
    """What a person asked to look at. Raises ``NoSuchSession``."""
    if session is not None:
        return one_session(connection, session, tenant)
    if since is not None:
        return what_came_since(connection, since)
    return Scope()


def verify_on(
    connection: psycopg.Connection[Any],
    price: PriceSource,
    scope: Scope | None = None,
    *,
    settle_seconds: float = 10.0,
    progress: Progress = lambda sessions: None,
    shown: int = SHOWN,
) -> Report:
    """The same on a connection: in its transaction where it is in one, else in short ones, which should be REPEATABLE READ. ``shown``: faults that the
    report keeps of each invariant."""
    load_as_microseconds(connection)
    return _Verifier(connection, price, scope or Scope(), progress, shown).run(settle_seconds)


class _Sized(NamedTuple):
    """A session and about how many events it has."""

    ref: SessionRef
    events: int


@dataclass(slots=True)
class _Stored:
    """What one snapshot holds of some sessions."""

    streams: dict[int, list[StoredStream]]
    projection: StoredProjection
    rollup: StoredRollup
    conflicts: dict[int, list[Row]]
    letters: dict[int, list[Row]]
    redactions: dict[int, list[Row]]
    kept: dict[int, list[Fault]]
    vacuumed: dict[int, Kept]
    price: PriceFunction
    events: Callable[[SessionRef], Iterable[StoredEvent]]


class _Verifier:
    def __init__(
        self,
        connection: psycopg.Connection[Any],
        price: PriceSource,
        scope: Scope,
        progress: Progress,
        shown: int,
    ) -> None:
        self.connection = connection
        self.price = price
        self.scope = scope
        self.progress = progress
        self.report = Report(partly=not scope.whole, not_checked=scope.says(), shown=shown)
        if scope.session is not None:
            self.report.skipped = {"I2", "I3"}
        self.waiting: dict[int, str] = {}
        """Sessions to look at again, with their names."""
        self.judged: dict[int, set[str]] = {}
        """What a look at a session that waits has already told: a second look would tell it twice."""
        self.refused = 0
        self.held_whole: dict[int, str] = {}
        """Long sessions that were read whole after all, with their names."""

    def run(self, settle_seconds: float) -> Report:
        with self.connection.transaction():
            if self.scope.session is None:
                self.report.add(ledger_faults(self.connection, self.scope))
            kin = families(self.connection, active_slot(self.connection))
        self.first_pass(kin)
        until = time.monotonic() + settle_seconds
        hours_wait = self.hours(final=False)
        while (self.waiting or hours_wait) and time.monotonic() < until:
            began = time.monotonic()
            self.look_again(all_of_them=False)
            hours_wait = hours_wait and self.hours(final=False)
            if not (self.waiting or hours_wait):
                break
            # Looking costs the database something: it is left alone for at least twice as long.
            pause = max(LOOK_AGAIN_SECONDS, 2 * (time.monotonic() - began))
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
        # A busy session is written all the time, and right in between: so those that never settled are looked at once more.
        self.look_again(all_of_them=True)
        hours_wait = self.hours(final=True)
        self.report.unsettled = sorted(self.waiting.values())
        if hours_wait:
            self.report.unsettled.append("usage_hourly")
        if self.refused:
            self.report.notes.append(
                f"{self.refused} sessions have rows that Postgres refused (dead letters `refused_by_database`): their events are in the "
                "ledger, those rows are not in the projection"
            )
        if self.held_whole:
            names = sorted(self.held_whole.values())
            shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
            self.report.notes.append(
                f"{len(names)} long sessions were read whole, because events of them come behind what was let go of: memory followed their "
                f"length ({shown})"
            )
        return self.report

    def first_pass(self, kin: Families) -> None:
        """Every session of the scope once: those alone in pages, families whole. Each page and each family in a transaction of its own."""
        after: int | None = 0
        while after is not None:
            with self.connection.transaction():
                page, after = self.page_after(after)
                self.look([one for one in page if one.ref.session_no not in kin], first=True)
        chosen = self.scope.sessions
        families_of_page: list[list[int]] = []
        for numbers in kin.groups():
            if chosen is None or any(number in chosen for number in numbers):
                families_of_page.append(numbers)
            if sum(map(len, families_of_page)) >= PAGE:
                self.look_at_page_of_families(families_of_page)
                families_of_page = []
        self.look_at_page_of_families(families_of_page)

    def look_at_page_of_families(self, some: Sequence[Sequence[int]]) -> None:
        if some:
            with self.connection.transaction():
                self.look_at_families(some, self.scope.sessions, first=True)

    def page_after(self, after: int) -> tuple[list[_Sized], int | None]:
        """The next sessions of the scope in the order of their numbers, and after which one to go on; None: these were the last."""
        chosen = self.scope.sessions
        if chosen is None:
            page = self.sized(query("verify/sessions_after"), {"after": after, "limit": PAGE})
            return page, page[-1].ref.session_no if page else None
        numbers = chosen.after(after, PAGE)
        return self.named(numbers), numbers[-1] if numbers else None

    def look_again(self, *, all_of_them: bool) -> None:
        """The sessions that were waiting, if not all of them then those that nobody has still to write."""
        left = sorted(self.waiting)
        for start in range(0, len(left), AT_ONCE):
            with self.connection.transaction():
                again = set(left[start : start + AT_ONCE])
                if not all_of_them:
                    again -= self.pending(list(again))
                if again:
                    self.look_at_them_again(again)

    def look_at_them_again(self, again: set[int]) -> None:
        for number in again:
            del self.waiting[number]
        # Who shares calls with whom, in this very snapshot.
        kin = families(self.connection, active_slot(self.connection))
        self.look(self.named(number for number in again if number not in kin), first=False)
        roots = {kin.root(number) for number in again if number in kin}
        self.look_at_families(
            [numbers for numbers in kin.groups() if kin.root(numbers[0]) in roots], again, first=False
        )

    def look_at_families(
        self, some: Sequence[Sequence[int]], wanted: Collection[int] | SortedNumbers | None, *, first: bool
    ) -> None:
        """Those of some families that are wanted (None: all); the calls of a family are decided together."""
        named = {
            one.ref.session_no: one for one in self.named(number for family in some for number in family)
        }
        pending = self.pending(list(named))
        by_tenant: dict[str, list[SessionRef]] = defaultdict(list)
        for one in named.values():
            by_tenant[one.ref.tenant].append(one.ref)
        slot = active_slot(self.connection)
        # Families of one tenant share nothing: decided together they are decided as each alone.
        owners = {tenant: decide_stored(self.connection, slot, refs) for tenant, refs in by_tenant.items()}
        self.look(
            [one for number, one in named.items() if wanted is None or number in wanted],
            first=first,
            owners=owners,
            pending_kin={number for family in some if not pending.isdisjoint(family) for number in family},
        )

    def look(
        self,
        sessions: Sequence[_Sized],
        *,
        first: bool,
        owners: Mapping[str, Ownership] | None = None,
        pending_kin: Collection[int] = (),
    ) -> None:
        """Prove I1, I4, I5 and I7 of some sessions, all from the caller's snapshot. ``owners`` by tenant where they share calls; ``pending_kin``: of
        these somebody who may share one is still to be written."""
        for refs, alone in _portions(sessions):
            self.look_at(refs, long_one=alone, first=first, owners=owners, pending_kin=pending_kin)

    def look_at(
        self,
        refs: Sequence[SessionRef],
        *,
        long_one: bool,
        first: bool,
        owners: Mapping[str, Ownership] | None,
        pending_kin: Collection[int],
    ) -> None:
        connection = self.connection
        numbers = [ref.session_no for ref in refs]
        pending = self.pending(numbers)
        stored = self.stored(refs, active_slot(connection))
        for ref in refs:
            number = ref.session_no
            if owners is not None:
                ownership = owners[ref.tenant]
            elif long_one:
                ownership = decide_long_alone(connection, active_slot(connection), ref)
            else:
                projection = stored.projection
                ownership = decide_alone(
                    ref, projection.of("session_facts", number), projection.of("model_calls", number)
                )
            if long_one and number not in stored.vacuumed:
                faults = self.faults_of_long(ref, stored, ownership, first=first)
            else:
                faults = self.faults_of(ref, stored, ownership, first=first)
            if any(letter["reason"] == "refused_by_database" for letter in stored.letters[number]):
                lacking = [
                    fault
                    for fault in faults
                    if fault.invariant == "I4" and fault.what.endswith("lacks a row")
                ]
                self.refused += bool(lacking)
                faults = [fault for fault in faults if fault not in lacking]
            unfinished = self.unfinished(number, pending, number in pending_kin, first)
            judged = self.judged.pop(number, set())
            if any(fault.invariant in unfinished for fault in faults):
                self.waiting[number] = f"{ref.tenant}/{ref.session_id}"
                self.judged[number] = judged | (INVARIANTS.keys() - unfinished)
            self.report.add(fault for fault in faults if fault.invariant not in judged | unfinished)
            self.progress(self.report.sessions)

    def unfinished(self, number: int, pending: set[int], pending_kin: bool, first: bool) -> set[str]:
        """Invariants of a session that nobody can judge in this snapshot."""
        if number in pending:
            return {"I4", "I5", "I7"}
        # At the first look, who shares calls with whom is known from an older snapshot: wrong sums are looked at again before they count.
        if pending_kin or (first and len(self.waiting) < SUSPECTS):
            return {"I5"}
        return set()

    def stored(self, refs: Sequence[SessionRef], slot: str) -> _Stored:
        connection = self.connection
        numbers = [ref.session_no for ref in refs]
        streams = load_streams(connection, numbers)
        kept: dict[int, list[Fault]] = defaultdict(list)
        by_number = {one.stream_no: one for found in streams.values() for one in found}
        for number, fault in conflict_faults(connection, {ref.session_no: ref for ref in refs}, by_number):
            kept[number].append(fault)
        return _Stored(
            streams,
            *self.written(slot, numbers),
            self.by_session(query("verify/conflicts"), numbers),
            self.by_session(query("verify/dead_letters"), numbers),
            self.by_session(query("verify/redactions"), numbers, most=MOST_REDACTIONS),
            kept,
            kept_of(connection, numbers),
            prices_of(self.price, connection),
            self.events_of(refs),
        )

    def written(self, slot: str, numbers: Sequence[int]) -> tuple[StoredProjection, StoredRollup]:
        """What the workers wrote: of a page all at once, of a session alone, which may be long, table by table as they are compared."""
        if len(numbers) == 1:
            return ask_projection(self.connection, slot), ask_rollup(self.connection, slot)
        return load_projection(self.connection, slot, numbers), load_rollup(self.connection, slot, numbers)

    def events_of(self, refs: Sequence[SessionRef]) -> Callable[[SessionRef], Iterable[StoredEvent]]:
        """Answers with the rows of each session's events once: those of a page are read together, those of a session alone as they are asked for."""
        rows = stored_events(self.connection, [ref.session_no for ref in refs])
        if len(refs) == 1:
            return lambda ref: (row for _, row in rows)
        found: dict[int, list[StoredEvent]] = defaultdict(list)
        for session_no, row in rows:
            found[session_no].append(row)
        return lambda ref: found.pop(ref.session_no, [])

    def faults_of_long(
        self, ref: SessionRef, stored: _Stored, ownership: Ownership, *, first: bool
    ) -> list[Fault]:
        """The same faults as ``faults_of``, of a session that is not held as a whole unless one of its events comes behind what was let go of."""
        number = ref.session_no
        beside = long.Beside(
            streams=stored.streams.get(number, []),
            conflicts=stored.conflicts[number],
            letters=stored.letters[number],
            redactions=stored.redactions[number],
            kept=stored.kept[number],
            ownership=ownership,
            price=stored.price,
            rollup=stored.rollup,
            shown=self.report.shown,
        )
        try:
            proven = long.prove(self.connection, active_slot(self.connection), ref, beside)
        except NeedsHistory:
            self.held_whole[number] = f"{ref.tenant}/{ref.session_id}"
            return self.faults_of(ref, stored, ownership, first=first)
        if first:
            self.report.sessions += 1
            self.report.events += proven.events
            self.report.turns += proven.turns
        return proven.faults

    def faults_of(
        self, ref: SessionRef, stored: _Stored, ownership: Ownership, *, first: bool
    ) -> list[Fault]:
        number = ref.session_no
        streams = stored.streams.get(number, [])
        events, faults = as_events(ref, streams, stored.events(ref))
        if first:
            self.report.sessions += 1
            self.report.events += len(events)
        faults += stored.kept[number]
        if not any(fault.what == UNREADABLE for fault in faults):
            faults += events_faults(ref, streams, events)
        if any(fault.what in (UNREADABLE, TWICE) for fault in faults):
            # What a fold, or a count, would say of these follows from the fault.
            return faults
        kept = stored.vacuumed.get(number)
        if kept is not None:
            return [*faults, *self.faults_of_vacuumed(ref, kept, stored, streams, events, ownership)]
        fold = fold_session(ref.tenant, ref.session_id, [one.event for one in events])
        if first:
            self.report.turns += len(fold.turns)
        faults += projection_faults(ref, fold, events, stored.projection)
        faults += gap_faults(ref, fold.gaps, streams)
        faults += rollup_faults(
            ref,
            fold,
            conflicts=stored.conflicts[number],
            dead_letters=stored.letters[number],
            redactions=stored.redactions[number],
            ownership=ownership,
            price=stored.price,
            turn_numbers={row["turn_key"]: row["turn_no"] for row in stored.projection.of("turns", number)},
            stored=stored.rollup,
        )
        return faults

    def faults_of_vacuumed(
        self,
        ref: SessionRef,
        kept: Kept,
        stored: _Stored,
        streams: Sequence[StoredStream],
        events: Sequence[HeldEvent],
        ownership: Ownership,
    ) -> list[Fault]:
        """I4, I5 and I7 of a session whose events are gone, from what was kept of it; ``events``: those that came since."""
        connection, number = self.connection, ref.session_no
        faults = kept_rows_faults(connection, active_slot(connection), ref, kept, stored.projection)
        faults += kept_gap_faults(connection, ref, streams, events)
        if not stored.projection.of("session_facts", number):
            # What its sums would be follows from the fault.
            return faults
        conflicts, letters = stored.conflicts[number], stored.letters[number]
        first, total = late_events(connection, number, kept)
        faults += kept_faults(
            ref,
            kept_session_rows(
                ref, kept, stored.projection, conflicts=len(conflicts), dead_letters=len(letters)
            ),
            digests={row["turn_key"]: row["digest"] for row in stored.projection.of("turns", number)},
            conflicts=conflicts,
            dead_letters=letters,
            redactions=stored.redactions[number],
            late=late_after_vacuum(first, total),
            ownership=ownership,
            price=stored.price,
            turn_numbers={row["turn_key"]: row["turn_no"] for row in stored.projection.of("turns", number)},
            stored=stored.rollup,
        )
        return faults

    def hours(self, *, final: bool) -> bool:
        """I5 of usage_hourly; true while a bucket waits for its worker. Faults are told in the final look alone."""
        if self.scope.session is not None:
            return False
        with self.connection.transaction():
            faults, waiting = hourly_rows(self.connection, active_slot(self.connection))
        if final:
            self.report.add(faults)
        return waiting

    # ---- reading ---------------------------------------------------------------------------------------------------------------

    def by_session(self, statement: bytes, sessions: Sequence[int], **more: object) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in read_rows(self.connection, statement, {"sessions": list(sessions), **more}):
            found[row.pop("session_no")].append(row)
        return found

    def sized(self, statement: bytes, parameters: Row) -> list[_Sized]:
        return [
            _Sized(SessionRef(*row[:3]), row[3]) for row in self.connection.execute(statement, parameters)
        ]

    def named(self, numbers: Iterable[int]) -> list[_Sized]:
        return self.sized(query("verify/sessions_named"), {"sessions": list(numbers)})

    def pending(self, numbers: Sequence[int]) -> set[int]:
        """Those that a worker has still to write, in the caller's snapshot."""
        row = self.connection.execute(query("verify/unflushed")).fetchone()
        batches, day = (None, None) if row is None else row
        found = self.connection.execute(
            query("verify/pending"),
            {"sessions": list(numbers), "unflushed": batches, "day": day or date.max},
        )
        return {session_no for session_no, unflushed, marked in found if unflushed or marked}


def _portions(sessions: Sequence[_Sized]) -> Iterator[tuple[list[SessionRef], bool]]:
    """At most ``PAGE`` sessions and about ``PAGE_EVENTS`` events each, never none; and whether it is a long session, alone."""
    portion: list[SessionRef] = []
    events = 0
    for one in sessions:
        if one.events > long.LONG_EVENTS:
            yield [one.ref], True
            continue
        if portion and (len(portion) == PAGE or events + one.events > PAGE_EVENTS):
            yield portion, False
            portion, events = [], 0
        portion.append(one.ref)
        events += one.events
    if portion:
        yield portion, False
