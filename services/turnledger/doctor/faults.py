"""What a check of the invariants found: faults with their rows, and sessions that nobody could judge yet (design 9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SHOWN = 10
"""Faults kept of one invariant; all are counted."""

INVARIANTS: dict[str, str] = {
    "I1": "every accepted event is exactly once in the ledger, and every other record in dead letters or conflicts",
    "I2": "accepted + duplicates + conflicts + dead = records read, in one unbroken chain of batches a partition",
    "I3": "offsets never go back, epochs never fall",
    "I4": "every turn and row equals a fresh fold of its events, byte for byte",
    "I5": "every rollup equals its recomputation, to the micro-dollar",
    "I7": "no hole without a gap row, no gap row without a hole",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not as an invariant says."""

    invariant: str
    what: str
    """A sentence."""
    row: dict[str, Any]
    """What finds it: keys, and the values that differ."""
    faults: int = 1
    """How many of its kind there are, where only the first rows of a question were read: then the last of these stands for the rest."""


@dataclass(slots=True)
class Report:
    """The result of one run. ``faults`` holds the first of each invariant, ``counts`` counts all."""

    faults: dict[str, list[Fault]] = field(default_factory=lambda: {name: [] for name in INVARIANTS})
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INVARIANTS, 0))
    shown: int = SHOWN
    """Faults of one invariant that are kept."""
    notes: list[str] = field(default_factory=list)
    """What is as it should be, but not what a person would expect."""
    unsettled: list[str] = field(default_factory=list)
    """Sessions (``tenant/session_id``) that a worker has still to write: neither right nor wrong."""
    not_checked: list[str] = field(default_factory=list)
    """What this run did not look at."""
    partly: bool = False
    """Only some sessions, or some batches, were looked at."""
    skipped: set[str] = field(default_factory=set)
    """Invariants that this run did not look at."""
    sessions: int = 0
    events: int = 0
    turns: int = 0
    records: int | None = None
    """Records of Kafka that were read again; None when none were to be."""

    def add(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.counts[fault.invariant] += fault.faults
            if len(self.faults[fault.invariant]) < self.shown:
                self.faults[fault.invariant].append(fault)

    @property
    def holds(self) -> bool:
        """All invariants hold, and nothing was left unjudged."""
        return not any(self.counts.values()) and not self.unsettled

    def as_json(self) -> dict[str, Any]:
        """One object: {holds, sessions, events, turns, records, invariants: [{id, says, checked, holds, faults, rows}], unsettled, notes,
        not_checked}. ``holds`` is null where an invariant was not checked, ``records`` where Kafka was not read."""
        return {
            "holds": self.holds,
            "sessions": self.sessions,
            "events": self.events,
            "turns": self.turns,
            "records": self.records,
            "invariants": [
                {
                    "id": name,
                    "says": says,
                    "checked": name not in self.skipped,
                    "holds": None if name in self.skipped else self.counts[name] == 0,
                    "faults": self.counts[name],
                    "rows": [{"what": fault.what, **fault.row} for fault in self.faults[name]],
                }
                for name, says in INVARIANTS.items()
            ],
            "unsettled": self.unsettled,
            "notes": self.notes,
            "not_checked": self.not_checked,
        }
