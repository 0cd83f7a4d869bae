"""Owns which generation of OpenHands wrote a file, and which session it is of: the files themselves do not say. ``README.md`` is the note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnledger.harness.documents import Document
from turnledger.harness.facts import (
    SESSION_LIMIT,
    Envelope,
    Notes,
    each_object,
    identifier,
    mapping,
    named,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.openhands import first, second
from turnledger.harness.sources import Source
from turnledger.harness.telling import Told

PRODUCER = "openhands"
OUTPUT_VERSION = 1


def _is_first(document: Document) -> bool:
    """An exported trajectory of the first generation."""
    return any(_is_first_event(each) for each in document.items())


def _is_first_event(value: Any) -> bool:
    event = mapping(value)
    return (
        type(event.get("id")) is int
        and "timestamp" in event
        and "source" in event
        and (isinstance(event.get("action"), str) or isinstance(event.get("observation"), str))
    )


def _is_state(value: Any) -> bool:
    """The state file beside the events of the second generation: it says which conversation it is of, and nothing else that its events do not."""
    state = mapping(value)
    return "agent" in state and "id" in state and ("execution_status" in state or "agent_status" in state)


def is_document(document: Document) -> bool:
    """Whether a JSON value is a trajectory, one event of the second generation, or its state file."""
    top = document.top
    if isinstance(top, dict):
        return second.recognises(top) or _is_state(top)
    return any(_is_first_event(each) or second.recognises(mapping(each)) for each in document.items())


def session_of(source: Source) -> str:
    """The session: as the caller says, else the folder of the conversation, else the file's own name."""
    path = source.path
    if source.session is not None:
        return source.session
    folder = path.parent.parent if path.parent.name == "events" else path.parent
    own = path.name.split(".")[0]
    name = (
        own
        if path.parent.name != "events" and own not in ("events", "trajectory", "base_state")
        else folder.name
    )
    return named(name, own)


def read_lines(source: Source, notes: Notes) -> Iterator[Envelope]:
    """Events of the second generation, one a line."""
    notes.traits["session_from_name"] += source.session is None
    told = Told(PRODUCER, OUTPUT_VERSION, session_of(source))
    yield from second.events(lambda: (record.value for record in source.records()), told, notes)


def read_document(source: Source, notes: Notes) -> Iterator[Envelope]:
    """A trajectory, or one event of the second generation in a file of its own."""
    document = source.document()
    if document is None:
        return
    top = document.top
    if isinstance(top, dict) and _is_state(top):
        session = identifier(top.get("id"), SESSION_LIMIT)
        notes.untold["base_state"] += 1
        if session is not None and text(top.get("id")) == source.session:
            notes.traits["session_confirmed"] += 1
        return
    notes.traits["session_from_name"] += source.session is None
    session = session_of(source)
    if _is_first(document):
        yield from first.events(document.items(), session, PRODUCER, OUTPUT_VERSION, notes)
        return
    told = Told(PRODUCER, OUTPUT_VERSION, session)
    if isinstance(top, dict):
        event = document.whole()
        yield from second.events(lambda: iter([event]), told, notes)
    else:
        yield from second.events(lambda: each_object(document.items()), told, notes)


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be an event of the second generation."""
    return second.recognises(record)


FORMAT = Format(
    name=PRODUCER,
    title="OpenHands",
    files="<conversation>/events/event-<n>-<id>.json, events as lines; exported trajectories of the first generation",
    versions="SDK 1 of mid-2026 (real events), 0.x trajectories (described)",
    usage="exact: running totals of the conversation, and per call in the first generation",
    cost="none (accumulated costs are not taken over)",
    latency="none",
    tools="requests, results, refusals, exit codes",
    turns="user messages; ends by state, finish or an agent's message",
    cannot="its own session id (name it with --session); the zone of its times (read as UTC); usage per call in SDK 1",
    lines=read_lines,
    document=read_document,
    recognises=recognises,
    is_document=is_document,
    hints=((b'"llm_metrics"',), (b'"tool_call_metadata"',), (b'"kind"', b'Event"', b'"source"')),
)
