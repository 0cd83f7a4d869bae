"""Sessions that a fleet that stands by reads before their partitions are given to it, so that its first rounds need not (design 6).

What is held here is believed only where it proves to be the ledger's: an accepted event never changes, so a state that was made of events of a
session, and of as many as its streams count, was made of all of them. Any other is let go of, and the session is read as one that is not held.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg

from turnledger.contract.event import Event
from turnledger.fold.state import NeedsHistory, SessionState
from turnledger.fold.version import FOLD_VERSION
from turnledger.ingest import load
from turnledger.ingest.cache import StreamEntry
from turnledger.store.named import query
from turnledger.store.read import Known, later_events, session_events
from turnledger.store.write import day_table

Connection = psycopg.Connection[Any]

LOOK_SECONDS = 2.0
"""Between two looks who is busy. What comes in between is read when the partitions are given: some 20 µs an event."""
LOOK_PAGES = 1024
"""How much of the end of a day's events tells who is busy: some ten thousand events, 5 ms."""
AT_ONCE = 25
"""Sessions of one step."""
STEP_SECONDS = 0.1
"""No session is begun after so long in one step: between two steps it is asked whether partitions were given."""


@dataclass(slots=True)
class _Held:
    """A state, and what it was made of."""

    state: SessionState
    events: int
    known: dict[int, tuple[int, int]]
    """By number of the stream: the greatest number, and how many receipts."""
    day: date
    """The ledger's day when it was read: later events have none before it."""


class Ahead:
    """States by number of the session, those that were busy least recently first. Used by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.bytes = 0
        self.used = 0
        """States that a load took."""
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._busy: list[int] = []
        """Of the last look, those that were not read since."""
        self._near = False
        """A switch could come when it was last looked."""
        self._day = date.min
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def step(self, connection: Connection, topic: str, partitions: Collection[int], limit_bytes: int) -> bool:
        """Read some of the sessions that are busy on these partitions, and of those that are held what came since. True where more wait.

        No more than ``limit_bytes`` stay. Nothing is read while no switch can come. Raises ``LedgerUnreadable``.
        """
        if not self._busy:
            if self.clock() < self._look_at:
                return False
            self._look_at = self.clock() + LOOK_SECONDS
            self._look(connection, topic, partitions, limit_bytes)
            if not self._busy:
                return False
        with connection.transaction():
            # One snapshot of streams and events.
            connection.execute("set transaction isolation level repeatable read, read only")
            found = load.find_numbers(connection, self._busy[:AT_ONCE])
            streams = load.streams_of(connection, found)
            self._catch_up(connection, streams)
            until = self.clock() + STEP_SECONDS
            for one in found:
                number = one.session_no
                if number not in self._held and self.bytes < limit_bytes:
                    if self.clock() >= until:
                        return True
                    history = session_events(connection, number)
                    state = SessionState.from_history(*one.key, history, written=True)
                    self._hold(number, state, len(history), streams[number], self._day)
        del self._busy[:AT_ONCE]
        self.shrink(limit_bytes)
        return bool(self._busy)

    def taken(
        self, connection: Connection, streams: Mapping[int, Sequence[StreamEntry]]
    ) -> dict[int, SessionState]:
        """Of these sessions, whose projections are whole, the states that are held, as of the ledger now. They are the caller's from then on."""
        self._catch_up(connection, streams)
        states = {number: self._held[number].state for number in streams if number in self._held}
        for number in states:
            self._drop(number)
        self.used += len(states)
        return states

    def shrink(self, limit_bytes: int) -> None:
        """Drop those that were busy least recently until no more than this is held."""
        while self._held and self.bytes > limit_bytes:
            self._drop(next(iter(self._held)))

    def _look(
        self, connection: Connection, topic: str, partitions: Collection[int], limit_bytes: int
    ) -> None:
        row = connection.execute(query("load/switch_ahead"), {"fold_version": FOLD_VERSION}).fetchone()
        if row is None:
            if not self._near:
                # Not at once: a switch that has come ends its rebuild too, and what it gave is asked for before the next look.
                self.shrink(0)
            self._near = False
            return
        self._near = True
        self._day = row[0]
        table = day_table(self._day)
        found = connection.execute(
            query("load/busy").replace(b"{day}", table.encode()),
            {"table": table, "pages": LOOK_PAGES, "topic": topic, "partitions": list(partitions)},
        )
        self._busy = [number for (number,) in found]
        for number in self._busy:
            if number in self._held:
                self._held.move_to_end(number)
        idle = len(self._held) - sum(number in self._held for number in self._busy)
        while idle and self.bytes >= limit_bytes:
            # Room for those that are busy now. Where these alone are too many, the others are read when they are needed.
            self._drop(next(iter(self._held)))
            idle -= 1

    def _catch_up(self, connection: Connection, streams: Mapping[int, Sequence[StreamEntry]]) -> None:
        """Bring those of these sessions that are held up to what their streams say. Who cannot be is dropped."""
        wanted = {number: its for number, its in streams.items() if number in self._held}
        if not wanted:
            return
        beyond = [
            Known(number, stream.stream_no, *self._held[number].known.get(stream.stream_no, (-1, 0)))
            for number, its in wanted.items()
            for stream in its
            if self._held[number].known.get(stream.stream_no) != _told(stream)
        ]
        day = min(self._held[number].day for number in wanted)
        later = later_events(connection, beyond, day)
        for number, its in wanted.items():
            held, events = self._held[number], later.get(number, [])
            self._drop(number)
            if held.events + len(events) == sum(stream.events for stream in its) and _extended(held, events):
                self._hold(number, held.state, held.events + len(events), its, held.day)

    def _hold(
        self, number: int, state: SessionState, events: int, streams: Sequence[StreamEntry], day: date
    ) -> None:
        if events == sum(stream.events for stream in streams):
            known = {stream.stream_no: _told(stream) for stream in streams}
            self._held[number] = _Held(state, events, known, day)
            self.bytes += state.size_bytes

    def _drop(self, number: int) -> None:
        self.bytes -= self._held.pop(number).state.size_bytes


def _told(stream: StreamEntry) -> tuple[int, int]:
    return stream.seen.hi, stream.next_ordinal


def _extended(held: _Held, events: list[Event]) -> bool:
    """Extend a state by what came since. What it has to say of it is let go of: the projections hold it, or somebody folds the session in whole."""
    if events:
        try:
            held.state.extend(events)
            held.state.take_changes(True, force=True)
        except NeedsHistory:
            return False
        held.state.drop_closed()
    return True
