"""Owns what a turn collects while it runs: the facts about state, guards and transitions of its session, from whatever part of the harness tells them.

A collector is open from the start of the user's turn, before any tool can write a slot, until the turn ends, by whatever path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

RELEVANT = frozenset(("slot.written", "transition.decided", "guard.evaluated", "state.observed"))
MOST = 10_000
"""Facts of one turn that are kept: 10 MB at the worst, where a real turn has some dozens."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One event that a turn collected, as it left: slot values and secrets in it are redacted."""

    seq: int
    type: str
    payload: Mapping[str, Any]


Listener = Callable[[int, Mapping[str, Any]], None]
"""Told the number and the envelope of each relevant event."""


class Taps:
    """Who listens to the events of a publisher. Safe for threads; costs nothing while nobody listens."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._next = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._listeners)

    def open(self, listener: Listener) -> Callable[[], None]:
        """Listen; what is returned ends it, any number of times."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._listeners[number] = listener

        def close() -> None:
            with self._lock:
                self._listeners.pop(number, None)

        return close

    def tell(self, seq: int, type: str, record: bytes) -> None:
        """An event has its number: ``record`` is its envelope as it leaves."""
        if not self._listeners or type not in RELEVANT:
            return
        envelope: dict[str, Any] = orjson.loads(record)
        for listener in list(self._listeners.values()):
            listener(seq, envelope)


class Collector:
    """The facts of one turn of one session. ``start`` and ``close`` may come any number of times; before and behind them nothing is collected."""

    def __init__(self, taps: Taps, session_id: str, turn_id: str | None) -> None:
        self._taps = taps
        self._session, self._turn = session_id, turn_id
        self._close: Callable[[], None] | None = None
        self._closed = False
        self.facts: list[Fact] = []
        self.overflowed = False
        """Whether there were more than are kept."""

    def start(self) -> None:
        """Begin to collect. One that was closed stays closed."""
        if self._close is None and not self._closed:
            self._close = self._taps.open(self.observe)

    def close(self) -> None:
        """End, and let go of the subscription."""
        self._closed = True
        self.keep(False)

    def keep(self, running: bool) -> None:
        """Let go of the subscription where the turn did not begin after all; it may begin again."""
        if not running and self._close is not None:
            self._close()
            self._close = None

    def observe(self, seq: int, envelope: Mapping[str, Any]) -> None:
        """Take an event if it is this turn's: of the session, of a type that matters, and of no other turn."""
        if self._close is None or envelope.get("session_id") != self._session:
            return
        if envelope.get("type") not in RELEVANT or envelope.get("turn_id") not in (None, self._turn):
            return
        if len(self.facts) >= MOST:
            self.overflowed = True
            return
        self.facts.append(Fact(seq, envelope["type"], envelope.get("payload") or {}))
