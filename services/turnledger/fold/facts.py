"""Owns the facts of a session (contract 12): what ``sessions`` needs and no turn, call or tool row tells.

Every fact is a count, an extreme, or the first or last in order, so that events may be added in any order and give the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.contract.event import Event
from turnledger.contract.fields import count, text
from turnledger.contract.types import EVENT_TYPES
from turnledger.contract.version import ENVELOPE_VERSION
from turnledger.fold.fields import wrong_type
from turnledger.fold.model import Row
from turnledger.fold.order import order_key

_DESCRIBED = ("name", "agent", "mode")
_SAY_MODEL = frozenset(
    (
        "session.started",
        "session.resumed",
        "model_call.started",
        "model_call.completed",
        "model_call.failed",
        "usage.reported",
    )
)

_COUNTED = frozenset(
    (
        "message.recorded",
        "net.requested",
        "fs.changed",
        "process.started",
        "process.audited",
        "guard.evaluated",
    )
)

_Found = tuple[bytes, str]

_NOTHING, _MODEL, _COUNT, _SESSION, _UNKNOWN = range(5)

_WHAT: dict[str, int] = {
    type_: (
        _SESSION
        if type_.startswith("session.")
        else _MODEL
        if type_ in _SAY_MODEL
        else _COUNT
        if type_ in _COUNTED
        else _NOTHING
    )
    for type_ in EVENT_TYPES
}
"""What a type adds to the facts beside the count of all events; one look-up an event."""

_BY_TYPE = {"process.started": "exec_count", "process.audited": "audit_event_count"}
_BY_DECISION = {"allowed": "allowed_requests", "denied": "denied_requests", "error": "error_requests"}
_BY_OUTCOME = {"blocked": "guard_blocks", "coerced": "guard_coercions"}
_COUNTS = (
    "message_count",
    "total_requests",
    *_BY_DECISION.values(),
    "total_file_events",
    *_BY_TYPE.values(),
    *_BY_OUTCOME.values(),
)


class Facts:
    """The facts of one session while its events are added. Events need ``running``; superseded streams are left out by the caller."""

    __slots__ = (
        "_counts",
        "_described",
        "_eval_counts",
        "_forked",
        "_last",
        "_models",
        "_newer",
        "_parent",
        "_started",
        "_unknown",
        "called",
        "event_count",
        "first_at",
        "kinds",
        "last_at",
    )

    def __init__(self) -> None:
        self.event_count = 0
        self.called = False
        """Some event is one of a model call or its usage."""
        self.first_at: int | None = None
        self.last_at: int | None = None
        self.kinds: set[str] = set()
        self._counts: dict[str, int] = {}
        self._eval_counts: dict[str, int] = {}
        self._described: dict[str, _Found] = {}
        self._models: set[str] = set()
        self._newer: dict[int, int] = {}
        self._unknown: dict[str, int] = {}
        self._parent: _Found | None = None
        self._forked: tuple[bytes, str, str | None, int | None] | None = None
        self._started: tuple[bytes, int | None] | None = None
        self._last: tuple[bytes, str, str | None, int | None] | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Count events."""
        self.event_count += len(events)
        first, last, kinds = self.first_at, self.last_at, self.kinds
        what_of = _WHAT.get
        kind = None
        for event in events:
            at = event.at
            if at is not None:
                if last is None or first is None:
                    first = last = at
                elif at > last:
                    last = at
                elif at < first:
                    first = at
            if event.kind != kind:
                kind = event.kind
                kinds.add(kind)
            if event.parent_session_id is not None:
                key = order_key(event)
                if self._parent is None or key < self._parent[0]:
                    self._parent = (key, event.parent_session_id)
            what = what_of(event.type, _UNKNOWN)
            if what:
                if what == _COUNT:
                    self._count(event)
                elif what == _MODEL:
                    self.called = True
                    model = event.payload.get("model")
                    if type(model) is str and model:
                        self._models.add(model)
                else:
                    self._say(event, what)
            if event.schema_version > ENVELOPE_VERSION:
                newer = self._newer
                newer[event.schema_version] = newer.get(event.schema_version, 0) + 1
        self.first_at, self.last_at = first, last

    def _say(self, event: Event, what: int) -> None:
        type_ = event.type
        if what == _UNKNOWN:
            self._unknown[type_] = self._unknown.get(type_, 0) + 1
        if type_ in _SAY_MODEL:
            model = event.payload.get("model")
            if type(model) is str and model:
                self._models.add(model)
        if type_.startswith("session."):
            self._session(event)

    def findings(self) -> list[Row]:
        """``unknown_event_type`` (one row a type) and ``newer_schema_version`` (one row a version); ``count`` says how many events."""
        found: list[Row] = [
            {
                "check": "unknown_event_type",
                "severity": "info",
                "row": {"type": type_},
                "count": self._unknown[type_],
            }
            for type_ in sorted(self._unknown, key=str.encode)
        ]
        found += [
            {
                "check": "newer_schema_version",
                "severity": "info",
                "row": {"schema_version": version},
                "count": self._newer[version],
            }
            for version in sorted(self._newer)
        ]
        return found

    def _count(self, event: Event) -> None:
        type_, payload = event.type, event.payload
        counts = self._eval_counts if event.kind == "eval" else self._counts
        name: str | None
        if type_ == "message.recorded":
            name = None if event.provenance == "inherited" else "message_count"
        elif type_ == "net.requested":
            counts["total_requests"] = counts.get("total_requests", 0) + 1
            name = _named(_BY_DECISION, payload.get("decision"))
        elif type_ == "fs.changed":
            name = None if payload.get("action") == "overflow" else "total_file_events"
        elif type_ == "guard.evaluated":
            name = _named(_BY_OUTCOME, payload.get("outcome"))
        else:
            name = _BY_TYPE[type_]
        if name is not None:
            counts[name] = counts.get(name, 0) + 1

    def _session(self, event: Event) -> None:
        key = order_key(event)
        type_, payload = event.type, event.payload
        if self._last is None or key > self._last[0]:
            self._last = (key, type_, text(payload, "status"), event.at)
        if type_ in ("session.started", "session.resumed"):
            for name in _DESCRIBED:
                value = text(payload, name)
                if value is not None and (name not in self._described or key > self._described[name][0]):
                    self._described[name] = (key, value)
        if type_ == "session.started" and (self._started is None or key < self._started[0]):
            self._started = (key, event.at)
        if type_ == "session.forked":
            parent = text(payload, "parent_session_id") or event.parent_session_id
            if parent is not None and (self._forked is None or key < self._forked[0]):
                self._forked = (key, parent, text(payload, "stream"), count(payload, "at_seq"))

    @property
    def running(self) -> bool:
        """The last ``session.*`` in order is not ``session.ended``."""
        return self._last is None or self._last[1] != "session.ended"

    def row(self, counted: bool) -> Row:
        """The columns of ``columns.FACTS``; ``counted``: some stream is dense or sparse."""
        kind = "live"
        if self.kinds == {"eval"}:
            kind = "eval"
        elif self.kinds and "live" not in self.kinds:
            kind = "import"
        counts = self._eval_counts if kind == "eval" else self._counts
        status, stopped_at = "running", None
        if not self.running:
            assert self._last is not None
            status, stopped_at = self._last[2] or "stopped", self._last[3]
        created_at = self._started[1] if self._started is not None else None
        forked = self._forked
        row: Row = {
            name: self._described[name][1] if name in self._described else None
            for name in ("name", "agent", "mode")
        }
        row["status"] = status
        row["kind"] = kind
        row["models"] = sorted(self._models, key=str.encode)
        row["parent_session_id"] = None if self._parent is None else self._parent[1]
        row["fork_parent_session_id"] = None if forked is None else forked[1]
        row["fork_stream"] = None if forked is None else forked[2]
        row["fork_at_seq"] = None if forked is None else forked[3]
        row["created_at"] = self.first_at if created_at is None else created_at
        row["last_activity_at"] = self.last_at
        row["stopped_at"] = stopped_at
        for name in _COUNTS:
            row[name] = counts.get(name, 0)
        row["event_count"] = self.event_count
        row["stream_grade"] = "complete" if counted else "unknown"
        return row


def _named(names: dict[str, str], value: object) -> str | None:
    return names.get(value) if isinstance(value, str) else None


def session_findings(event: Event) -> list[Row]:
    """``wrong_type_in_payload`` of the ``session.*`` fields that the facts read."""
    payload = event.payload
    found: list[Row] = []
    if event.type in ("session.started", "session.resumed"):
        names: tuple[str, ...] = (*_DESCRIBED, "model")
    elif event.type == "session.ended":
        names = ("status",)
    elif event.type == "session.forked":
        names = ("parent_session_id", "stream")
        if count(payload, "at_seq") is None and payload.get("at_seq") is not None:
            wrong_type(event, "at_seq", found)
    else:
        names = ()
    for name in names:
        if text(payload, name) is None and payload.get(name) is not None:
            wrong_type(event, name, found)
    return found
