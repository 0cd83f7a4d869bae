"""What the events of a session bear witness of, gathered in one reading in order. Pure; holds the first few of each kind and counts the rest."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from turnledger.contract.event import Event
from turnledger.contract.shapes import hide
from turnledger.contract.times import utc_text
from turnledger.doctor.conversation import Conversation, Line, Recent, every, result_line, text, tool_line
from turnledger.doctor.line import begin

Row = dict[str, Any]
T = TypeVar("T")

KEPT = 20
"""Things of one kind that are kept whole."""
RULE = 160
"""Characters of the words of a denial that tell one from another."""
PATHS = 10_000
"""Paths whose writing is remembered."""
HEAD, TAIL = 60, 140
"""Lines of a long timeline that are kept: its beginning and its end."""

BOOKKEEPING: Final = frozenset(("body.recorded", "capture.recorded", "counter.reported"))
"""Types that tell of the record and not of the work, as all of ``stream.*`` do: a session does not stop at one of them."""
WRITTEN: Final = frozenset(("created", "modified", "restored", "import"))
OUTCOMES: Final[dict[str, tuple[str, ...]]] = {
    "session.ended": ("status", "exit_code"),
    "driver.exited": ("outcome", "generation"),
    "attempt.finished": ("outcome", "attempt_id"),
    "recorder.settled": ("outcome",),
}
"""Outcomes that stand by themselves: none implies another (contract 6)."""


class Some(Generic[T]):
    """The first few (:data:`KEPT`) and the last of a kind, and how many there were."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self.first: list[T] = []
        self.last: T | None = None
        self.count = 0

    def add(self, one: T) -> None:
        self.count += 1
        self.last = one
        if len(self.first) < self._kept:
            self.first.append(one)

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True, slots=True)
class Mishap:
    """Something that went wrong: who, and in which words."""

    what: str
    words: str
    turn: str | None
    at: str | None
    place: int
    """Which event of the session, from 0."""


@dataclass(slots=True)
class Artifact:
    """The last check of a file that was expected."""

    path: str
    expected: Any
    present: bool | None
    checks: int = 1
    written: bool = False
    """A change of the file was seen."""

    @property
    def missing(self) -> bool:
        """It was expected and not there."""
        return self.present is False and self.expected is not False

    @property
    def unwanted(self) -> bool:
        """It was there and was not to be."""
        return self.present is True and self.expected is False


@dataclass(slots=True)
class Witness:
    """Everything that the sections of a report are made of, from events alone."""

    events: int = 0
    types: Counter[str] = field(default_factory=Counter)
    first: Event | None = None
    last: Event | None = None
    """The last that tells of the work, which :data:`BOOKKEEPING` does not; where nothing does, the last."""
    streams: dict[tuple[str, int, str], list[int]] = field(default_factory=dict)
    """[least number, greatest number, events without one] of each stream; -1 where it has no number."""
    claimed: int = 0
    """Events that an agent says it did and nobody watched."""
    head: list[tuple[int, Line]] = field(default_factory=list)
    tail: deque[tuple[int, Line]] = field(default_factory=lambda: deque(maxlen=TAIL))
    lines: int = 0
    last_line: Line | None = None
    tool_errors: Some[Mishap] = field(default_factory=Some)
    denials: Some[Mishap] = field(default_factory=Some)
    denied_by: Counter[str] = field(default_factory=Counter)
    """How many were denied in which words; of more than :data:`KEPT` different ones those that came first."""
    blocks: Some[Mishap] = field(default_factory=Some)
    coercions: Some[Mishap] = field(default_factory=Some)
    call_failures: Some[Mishap] = field(default_factory=Some)
    error_classes: Counter[str] = field(default_factory=Counter)
    limits: Some[Row] = field(default_factory=Some)
    outcomes: dict[str, Row] = field(default_factory=dict)
    skills: list[str] = field(default_factory=list)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    last_tool_asked: Mishap | None = None
    exits: Counter[int] = field(default_factory=Counter)
    """Exit codes of processes that did not end with 0."""
    _works: bool = False
    _paths: set[str] = field(default_factory=set)
    _conversation: Conversation = field(default_factory=Conversation)
    _names: Recent = field(default_factory=Recent)

    def read(self, event: Event, tool_calls: int | None = None) -> None:
        """The next event of the session, in the order of contract 5."""
        place = self.events
        self.events += 1
        self.types[event.type] += 1
        self.first = self.first or event
        works = event.type not in BOOKKEEPING and not event.type.startswith("stream.")
        if works or not self._works:
            self.last = event
        self._works = self._works or works
        seen = self.streams.setdefault((event.producer, event.epoch, event.stream), [-1, -1, 0])
        if event.seq is None:
            seen[2] += 1
        else:
            seen[0] = event.seq if seen[0] < 0 else min(seen[0], event.seq)
            seen[1] = max(seen[1], event.seq)
        self.claimed += event.provenance == "claimed"
        self._lines(self._conversation.read(event, tool_calls))
        reader = _READERS.get(event.type)
        if reader is not None:
            reader(self, event, place)

    def end(self) -> None:
        """No more events come."""
        self._lines(self._conversation.end())
        for artifact in self.artifacts.values():
            artifact.written = any(_same_file(artifact.path, path) for path in self._paths)

    def last_as_line(self) -> str:
        """The last event of the work: its type and what it tells."""
        if self.last is None:
            return "none"
        told = every(self.last, self._names)
        words = " ".join(filter(None, (told.name, told.text)))
        return f"{self.last.type} {words}".strip()

    def _lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            numbered = (self.lines, line)
            if self.lines < HEAD:
                self.head.append(numbered)
            else:
                self.tail.append(numbered)
            self.lines += 1
            self.last_line = line

    def _mishap(self, what: str | None, words: str | None, event: Event, place: int) -> Mishap:
        # Hidden before anybody cuts it: half a secret has no shape.
        return Mishap(
            hide(what or "?"), hide(words or "without a message"), turn_of(event), instant_of(event), place
        )

    def _completed(self, event: Event, place: int) -> None:
        told = result_line(event, self._names)
        if event.payload.get("status") == "error":
            words = (told.text or "").removeprefix("error: ")
            self.tool_errors.add(self._mishap(told.name, words, event, place))

    def _denied(self, event: Event, place: int) -> None:
        told = result_line(event, self._names)
        denied = self._mishap(told.name, told.text, event, place)
        self.denials.add(denied)
        words = begin(denied.words, RULE)
        if words in self.denied_by or len(self.denied_by) < KEPT:
            self.denied_by[words] += 1

    def _requested(self, event: Event, place: int) -> None:
        told = tool_line(event, self._names)
        self.last_tool_asked = self._mishap(told.name, told.text, event, place)

    def _guard(self, event: Event, place: int) -> None:
        payload = event.payload
        outcome = payload.get("outcome")
        kept = {"blocked": self.blocks, "coerced": self.coercions}.get(
            outcome if isinstance(outcome, str) else ""
        )
        if kept is not None:
            kept.add(
                self._mishap(text(payload.get("guard")), text(payload.get("reason")) or outcome, event, place)
            )

    def _failed(self, event: Event, place: int) -> None:
        payload = event.payload
        kind = text(payload.get("error_class")) or "other"
        self.error_classes[kind] += 1
        status = payload.get("status_code")
        words = " ".join(
            filter(
                None, (kind, str(status) if isinstance(status, int) else None, text(payload.get("message")))
            )
        )
        self.call_failures.add(
            self._mishap(text(payload.get("model")) or text(payload.get("provider")), words, event, place)
        )

    def _limit(self, event: Event, place: int) -> None:
        named = {name: event.payload.get(name) for name in ("limit", "value", "threshold")}
        self.limits.add({**named, "turn": turn_of(event), "at": instant_of(event), "place": place})

    def _outcome(self, event: Event, place: int) -> None:
        named = {name: event.payload.get(name) for name in OUTCOMES[event.type]}
        self.outcomes[event.type] = {**named, "at": instant_of(event)}

    def _capture(self, event: Event, place: int) -> None:
        skill = text(event.payload.get("skill"))
        if skill is not None and skill not in self.skills and len(self.skills) < KEPT:
            self.skills.append(skill)

    def _artifact(self, event: Event, place: int) -> None:
        path, present = text(event.payload.get("path")), event.payload.get("present")
        if path is None or (path not in self.artifacts and len(self.artifacts) >= PATHS):
            return
        before = self.artifacts.get(path)
        self.artifacts[path] = Artifact(
            path,
            event.payload.get("expected"),
            present if isinstance(present, bool) else None,
            1 if before is None else before.checks + 1,
        )

    def _changed(self, event: Event, place: int) -> None:
        path = text(event.payload.get("path"))
        if path is not None and event.payload.get("action") in WRITTEN and len(self._paths) < PATHS:
            self._paths.add(path)

    def _exited(self, event: Event, place: int) -> None:
        code = event.payload.get("exit_code")
        if isinstance(code, int) and not isinstance(code, bool) and code:
            self.exits[code] += 1


_READERS: Final = {
    "tool_call.completed": Witness._completed,
    "tool_call.denied": Witness._denied,
    "tool_call.requested": Witness._requested,
    "guard.evaluated": Witness._guard,
    "model_call.failed": Witness._failed,
    "limit.reached": Witness._limit,
    "capture.recorded": Witness._capture,
    "artifact.checked": Witness._artifact,
    "fs.changed": Witness._changed,
    "process.exited": Witness._exited,
    **dict.fromkeys(OUTCOMES, Witness._outcome),
}


def turn_of(event: Event) -> str | None:
    """What an event says of its turn."""
    if event.turn_id is not None:
        return event.turn_id
    return None if event.turn_index is None else f"#{event.turn_index}"


def instant_of(event: Event) -> str | None:
    """When it happened, as text; null where nobody knows."""
    return None if event.at is None else utc_text(event.at)


def _same_file(expected: str, seen: str) -> bool:
    """A check often names a path below the folder of the work, and a change names it from the root."""
    return seen == expected or seen.endswith(f"/{expected.removeprefix('./')}")
