"""What a check found in one session, and the evidence beside it in the ledger. Pure: no database here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]

LEVELS = ("error", "warning", "info")
"""Severities, the gravest first. An ``error`` is red: `sessions check` ends with status 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of contract 13, or of the doctor's own, that found something."""

    check: str
    severity: str
    count: int
    rows: Sequence[Row]


class Reason(NamedTuple):
    """Why a finding may be so, and what to look at next: both from the evidence of this very session."""

    why: str
    next: str


class Place(NamedTuple):
    """A position of a stream; ``receipt_key`` where it has no number."""

    producer: str
    epoch: int
    stream: str
    seq: int | None
    receipt_key: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Place | None:
        """The place that a finding's row names, if it names one."""
        if "producer" not in row or "stream" not in row or ("seq" not in row and "receipt_key" not in row):
            return None
        seq = row.get("seq")
        return cls(
            row["producer"],
            row.get("epoch", 0),
            row["stream"],
            seq,
            None if seq is not None else row.get("receipt_key"),
        )

    def __str__(self) -> str:
        return (
            f"{stream_name(self._asdict())}/{self.seq if self.seq is not None else f'r:{self.receipt_key}'}"
        )


class Seen(NamedTuple):
    """One event of the ledger, as far as a reason needs it."""

    type: str
    at: str | None
    """UTC text of six digits."""
    payload: Row

    def __str__(self) -> str:
        return self.type if self.at is None else f"{self.type} at {clock(self.at)}"


@dataclass(slots=True)
class Evidence:
    """What the ledger holds around the findings of one session."""

    tenant: str = "default"
    session_id: str = ""
    facts: Row = field(default_factory=dict)
    """Of ``session_facts``; empty before ingest projected it."""
    sums: Row = field(default_factory=dict)
    """Of ``turnledger.sessions``; empty before the rollup worker saw it."""
    streams: Sequence[Row] = ()
    types: Sequence[Row] = ()
    """{producer, epoch, stream, type, events, first_at, last_at}."""
    calls: Sequence[Row] = ()
    """Model calls alike, {provider, model, status, status_code, stop_reason, error_class, inherited, reported, calls}."""
    tools: Sequence[Row] = ()
    """Tool calls alike, {tool_name, origin, status, pairing, calls, average_ms}."""
    requests: Sequence[Row] = ()
    """Requests alike, {domain, decision, method, path, status_code, conn_type, requests, bytes_received}."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows by table."""
    named_calls: Mapping[str, Row] = field(default_factory=dict)
    """By ``call_key``."""
    turns: Mapping[str, Row] = field(default_factory=dict)
    """By ``turn_key``."""
    same_ids: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """Tool calls by their id."""
    events: Mapping[Place, Seen] = field(default_factory=dict)
    around: Mapping[tuple[str, int, str, int], tuple[Seen | None, Seen | None]] = field(default_factory=dict)
    """By (producer, epoch, stream, first number of a hole): the event before it, and the one behind."""
    declared: Sequence[Seen] = ()
    """``stream.*`` and ``session.*`` events, in the order in which they came."""
    dead_letters: int = 0

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.session_id}"

    @property
    def ended(self) -> bool:
        return (
            any(one["type"] == "session.ended" for one in self.types)
            and self.facts.get("status") != "running"
        )

    def has(self, *types: str) -> int:
        """Events of these types; a name that ends in a dot means all that begin with it."""
        return sum(
            one["events"]
            for one in self.types
            if one["type"] in types
            or any(name.endswith(".") and one["type"].startswith(name) for name in types)
        )

    def told_by(self, prefix: str) -> list[str]:
        """Producers that tell events of this kind."""
        return sorted({one["producer"] for one in self.types if one["type"].startswith(prefix)})

    def life(self) -> str:
        """What is known of the session's end, in words."""
        status, at = self.facts.get("status"), self.facts.get("stopped_at")
        if status is None:
            return "nothing is projected of the session yet"
        if not self.ended:
            last = self.facts.get("last_activity_at")
            return "the session has no end yet" + (f" (last heard of {clock(last)})" if last else "")
        return f"the session ended as {status}" + (f" at {clock(at)}" if at else "")

    def ends(self) -> list[Seen]:
        return [one for one in self.declared if one.type == "session.ended"]


Explain = Callable[[Finding, Evidence], Reason]


def clock(at: str | None) -> str:
    """An instant of ``contract.times.utc_text``, to the second, for a sentence."""
    return "an unknown time" if at is None else f"{at.partition('.')[0]}Z".replace("T", " ")


def stream_name(row: Mapping[str, Any]) -> str:
    epoch = f"/{row['epoch']}" if row.get("epoch") else ""
    return f"{row.get('producer')}{epoch}/{row.get('stream')}"


def some(values: Iterable[Any], limit: int = 3) -> str:
    """The most frequent values with how often each stands, in words."""
    counted = Counter("unknown" if value is None else str(value) for value in values)
    listed = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    if len(listed) == 1:
        return listed[0][0]
    said = [name if number == 1 else f"{name} ({number})" for name, number in listed[:limit]]
    more = len(listed) - limit
    return ", ".join(said) + (f" and {more} more" if more > 0 else "") if said else "none"


def plural(number: int, one: str, many: str | None = None) -> str:
    """``3 turns``, ``1 turn``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
