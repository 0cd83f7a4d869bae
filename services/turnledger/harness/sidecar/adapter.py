"""Owns what a sidecar log means in events: lines without time, id or usage, whose order is all there is.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from turnledger.harness import saying
from turnledger.harness.facts import (
    Envelope,
    Notes,
    identified,
    identifier,
    mapping,
    named,
    objects,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.reading import Record
from turnledger.harness.sources import Source
from turnledger.harness.telling import STARTED, Told

PRODUCER = "sidecar"
OUTPUT_VERSION = 1
LOG, DERIVED = "log", "derived"
TAGS = frozenset({"UserMessage", "AssistantMessage", "ToolCall", "ToolResult"})


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be a line of the log: one object under one of its four tags."""
    return len(record) == 1 and next(iter(record)) in TAGS and isinstance(next(iter(record.values())), dict)


def session_of(source: Source) -> str:
    """The session: as the caller says, else the file's own name, which is how the log is filed."""
    return named(source.session, source.path.name.split(".")[0])


class _Log:
    """One log being told, each line a function of those before it."""

    def __init__(self, session: str, notes: Notes) -> None:
        self._session = session
        self._notes = notes
        self._told = Told(PRODUCER, OUTPUT_VERSION, session)
        self._turn: str | None = None
        self._open: dict[str, deque[str]] = {}

    def opened(self) -> Iterator[Envelope]:
        """The log is dense: one number a line."""
        declared = self._told.event("stream.declared", {"density": "dense"}, key="dense", rank=0, stream=LOG)
        yield declared
        yield from self._told.declared(DERIVED)

    def lost(self, number: int, reason: str) -> Envelope:
        """A line that could not be read: a gap that says so, until a longer copy holds it whole."""
        payload = {"stream": LOG, "from_seq": number, "to_seq": number, "reason": reason}
        return self._told.event("stream.lost", payload, key=f"lost:{number}", stream=DERIVED)

    def line(self, record: Record) -> Iterator[Envelope]:
        """One line. The first key is its tag."""
        number, value = record.number, record.value
        tag = next(iter(value), "?")
        said = mapping(value.get(tag))
        if tag == "UserMessage":
            self._turn = identified(self._session, number)
            opening = saying.started(text(said.get("text")))
            yield self._derived("turn.started", opening, number)
            yield self._numbered(number, "message.recorded", saying.message("user", text(said.get("text"))))
        elif tag == "AssistantMessage":
            message = saying.message("assistant", text(said.get("text")))
            wanted = objects(said.get("tool_calls"))
            yield self._numbered(number, "message.recorded", {**message, "tool_calls": len(wanted)})
            # A line of the assistant's is the only sign of a request to a model; the log does not say which tools it asked for.
            yield self._derived("model_call.completed", {}, number, call=identified(self._session, number))
        elif tag == "ToolCall":
            tool, name = identified(self._session, number), identifier(said.get("name"), 256) or "?"
            if tool is not None:
                self._open.setdefault(name, deque()).append(tool)
            asked = saying.requested(said.get("name"), said.get("args"))
            yield self._numbered(number, "tool_call.requested", asked, tool=tool)
        elif tag == "ToolResult":
            yield self._result(number, said)
        else:
            self._notes.unknown[tag] += 1
            kind, payload = saying.unknown(PRODUCER, tag, value)
            yield self._numbered(number, kind, payload)

    def _result(self, number: int, said: Mapping[str, Any]) -> Envelope:
        waiting = self._open.get(identifier(said.get("name"), 256) or "?")
        tool = waiting.popleft() if waiting else identified(self._session, number)
        output = said.get("output")
        shown = text(output) or saying.text_of(mapping(output).get("content"))
        result = saying.completed(_failed(output), shown, name=said.get("name"))
        if not _failed(output):
            result.pop("status")  # the log has no flag for failures: unknown, not ok
        return self._numbered(number, "tool_call.completed", result, tool=tool)

    def _derived(
        self, kind: str, payload: dict[str, Any], number: int, *, call: str | None = None
    ) -> Envelope:
        return self._told.event(
            kind,
            payload,
            key=f"{number:012}:{kind}",
            rank=STARTED,
            stream=DERIVED,
            call=call,
            turn=self._turn,
            provenance="derived",
        )

    def _numbered(
        self, number: int, kind: str, payload: dict[str, Any], *, tool: str | None = None
    ) -> Envelope:
        event: Envelope = {
            "session_id": self._session,
            "producer": PRODUCER,
            "epoch": OUTPUT_VERSION,
            "stream": LOG,
            "seq": number,
            "kind": "import",
            "type": kind,
            "payload": payload,
        }
        if tool is not None:
            event["tool_call_id"] = tool
        if self._turn is not None:
            event["turn_id"] = self._turn
        return event


def _failed(output: Any) -> bool:
    """Whether an output says that it is an error; silence says nothing."""
    if isinstance(output, str):
        return output.lstrip().lower().startswith(("error:", "error -", "traceback (most recent call last)"))
    fields = mapping(output)
    return fields.get("is_error") is True or bool(fields.get("error")) or fields.get("success") is False


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one log."""
    notes.traits["session_from_name"] += source.session is None
    log = _Log(session_of(source), notes)
    yield from log.opened()
    for record in source.records():
        yield from log.line(record)
    for each in source.condition.quarantined:
        yield log.lost(each.number, each.reason)


FORMAT = Format(
    name=PRODUCER,
    title="Sidecar log",
    files="<data>/sidecar/sessions/<session>.jsonl",
    versions="one form (described)",
    usage="none",
    cost="none",
    latency="none",
    tools="requests and results, paired by name and order; failures only where the output says so",
    turns="user messages; no ends",
    cannot="times, models, tokens; how many requests were made: a line of the assistant's is one derived call",
    lines=read,
    recognises=recognises,
)
