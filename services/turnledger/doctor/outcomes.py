"""How the turns, model calls and tool calls of a session came out, gathered row by row. Pure; holds the first few of each kind and counts the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from turnledger.doctor.witness import Some

Row = dict[str, Any]

WAITING = 50
"""Tool calls without a result that are kept: of more the number."""
UNWELL: Final = frozenset(("failed", "interrupted", "aborted", "abandoned"))
UNANSWERED: Final = frozenset(("missing_result", "pending"))


@dataclass(slots=True)
class Turns:
    """{turn_key, status, stop_why, duration_ms, record?} of each turn, in order."""

    count: int = 0
    completed: int = 0
    timed: int = 0
    """Turns whose duration is known, and the sum of it."""
    spent_ms: int = 0
    unwell: Some[Row] = field(default_factory=Some)
    last: Row | None = None

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Of all of them."""
        found = cls()
        for row in rows:
            found.read(row)
        return found

    def read(self, turn: Row) -> None:
        """The next turn."""
        self.count += 1
        self.completed += turn["status"] == "completed"
        if turn["duration_ms"] is not None:
            self.timed += 1
            self.spent_ms += turn["duration_ms"]
        if turn["status"] in UNWELL:
            self.unwell.add(turn)
        self.last = turn

    def kept(self) -> list[Row]:
        """Those whose records are quoted."""
        return [*self.unwell.first, *([] if self.last is None else [self.last])]

    def put_records(self, records: Mapping[str, Row | None]) -> None:
        """Give those that are kept their records, by turn key. A vacuum takes them."""
        for turn in self.kept():
            turn["record"] = records.get(turn["turn_key"])


@dataclass(slots=True)
class Tools:
    """{tool_name, status, pairing, turn_key, requested_at} of each tool call, in order."""

    last_turn: str | None
    """The key of the last turn."""
    count: int = 0
    succeeded: Counter[str] = field(default_factory=Counter)
    """How many ended well, by name."""
    waiting: Some[Row] = field(default_factory=lambda: Some(WAITING))
    """Those that nobody answered."""
    waiting_at_the_end: Row | None = None
    """The last of those in the last turn."""

    @classmethod
    def of(cls, rows: Iterable[Row], turns: Turns) -> Self:
        """Of all of them."""
        found = cls(None if turns.last is None else turns.last["turn_key"])
        for row in rows:
            found.read(row)
        return found

    def read(self, tool: Row) -> None:
        """The next tool call."""
        self.count += 1
        if tool["status"] == "ok":
            self.succeeded[tool["tool_name"] or "?"] += 1
        if tool["pairing"] in UNANSWERED:
            self.waiting.add(tool)
            if tool["turn_key"] == self.last_turn:
                self.waiting_at_the_end = tool


@dataclass(slots=True)
class Calls:
    """{status, output_tokens, latency_ms} of each model call."""

    count: int = 0
    completed: int = 0
    started: int = 0
    """Calls that neither came to an end nor failed."""
    timed: int = 0
    """Calls that tell both what they wrote and how long it took, and the sums of both."""
    output_tokens: int = 0
    latency_ms: int = 0

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Of all of them."""
        found = cls()
        for row in rows:
            found.read(row)
        return found

    def read(self, call: Row) -> None:
        """The next model call."""
        self.count += 1
        self.completed += call["status"] == "completed"
        self.started += call["status"] == "started"
        if call["output_tokens"] is not None and call["latency_ms"]:
            self.timed += 1
            self.output_tokens += call["output_tokens"]
            self.latency_ms += call["latency_ms"]
