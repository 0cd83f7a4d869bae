"""Owns what a DeepSeek Harness session log means in events: numbered events of a file that only grows, one file a format version.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from turnledger.fold.seen import StreamSeen
from turnledger.harness import saying
from turnledger.harness.facts import (
    GREATEST,
    SESSION_LIMIT,
    Envelope,
    Notes,
    count,
    identified,
    identifier,
    known,
    mapping,
    moment_of,
    objects,
    parsed,
    text,
    whole,
)
from turnledger.harness.format import Format
from turnledger.harness.keys import Keys
from turnledger.harness.sources import Source
from turnledger.harness.telling import EVENTS_A_RECORD, Numbered

PRODUCER = "deepseek-harness"
OUTPUT_VERSION = 1
NEWEST = 4
"""The last format version whose meaning is known; a later one is read all the same, and noted."""
UNTOLD = frozenset(
    {
        "assistant/chunk",
        "text-chunks",
        "reasoning-chunks",
        "tool-call-chunks",
        "step/start",
        "step/end",
        "request/header",
        "request/context",
        "session/title",
        "session/end-seed",
        "command/run",
        "command/done",
        "permission/preset",
        "sandbox/mode",
        "approval/policy",
        "llm/retry-started",
    }
)
ENDINGS = {
    "completed": "completed",
    "stop": "completed",
    "aborted": "interrupted",
    "cancelled": "interrupted",
}
KNOWN_FAMILIES = ("turn/", "step/", "assistant/", "user/", "tool/", "request/", "session/", "llm/")


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be a line of such a log."""
    kind = record.get("type")
    if kind == "session":
        return type(record.get("version")) is int and type(record.get("createdAt")) is int and "id" in record
    return (
        isinstance(kind, str)
        and kind.startswith(KNOWN_FAMILIES)
        and type(record.get("seq")) is int
        and isinstance(record.get("data"), dict)
    )


def usage_of(value: Any) -> dict[str, int] | None:
    """The counters of an attempt: disjoint on the input, reasoning inside the output. A cache counter that is absent was not used."""
    given = mapping(value)
    names = {
        "input": "inputTokens",
        "output": "outputTokens",
        "cache_read": "cacheReadTokens",
        "cache_write": "cacheWriteTokens",
        "reasoning": "reasoningTokens",
    }
    found = known({ours: count(given.get(theirs)) for ours, theirs in names.items()})
    if not any(found.values()):
        return None
    if "cacheReadTokens" not in given:
        found["cache_read"] = 0
    return found


class _Log:
    """One log being told: what the events so far have said."""

    def __init__(self, header: Mapping[str, Any], session: str, notes: Notes, seed_end: int) -> None:
        version = count(header.get("version")) or 0
        self._header = header
        self._version = version
        self._notes = notes
        self._seed_end = seed_end
        self._told = Numbered(PRODUCER, OUTPUT_VERSION, session, f"v{version}")
        self._provider: str | None = None
        self._model: str | None = None
        self._turn: str | None = None
        self._seen = StreamSeen()
        self._steps = Keys()
        self._attempts = array("Q", [0])
        """By a step's number."""
        self._streamed: dict[tuple[str | None, int | None], Mapping[str, Any]] = {}
        if version > NEWEST:
            notes.traits["newer_format_version"] += 1

    def opened(self) -> Iterator[Envelope]:
        """The session. A later version of the format tells a migrated session better than an earlier one."""
        header, told = self._header, self._told
        told.at(0)
        at = moment_of(header.get("createdAt"), self._notes)
        parent = identifier(header.get("parentSession"), SESSION_LIMIT)
        yield told.event("stream.declared", {"density": "sparse"})
        for earlier in range(min(self._version, NEWEST)):
            gone = {
                "producer": PRODUCER,
                "epoch": OUTPUT_VERSION,
                "stream": f"v{earlier}",
                "reason": "migrated",
            }
            yield told.event("stream.superseded", gone, at=at)
        facts = known({"agent": PRODUCER, "cwd": identifier(header.get("cwd"), 4096)})
        yield told.event("session.started", facts, at=at, parent=parent)
        if parent is not None and self._seed_end >= 0:
            yield told.event("session.forked", {"parent_session_id": parent}, at=at, parent=parent)

    def event(self, record: dict[str, Any]) -> Iterator[Envelope]:
        """One event of the log."""
        kind, data = text(record.get("type")) or "?", mapping(record.get("data"))
        number = count(record.get("seq"))
        if kind in ("request/header", "request/context"):
            self._requested(kind, data)
        if number is None or number >= GREATEST // EVENTS_A_RECORD - 1:
            # Runs of streamed pieces are stored in packed rows with numbers of their own kind; they tell nothing.
            where = self._notes.untold if kind in UNTOLD else self._notes.traits
            where[kind if kind in UNTOLD else "event_without_number"] += 1
            return
        if number <= self._seed_end:
            self._notes.traits["copied_history"] += 1
            return
        if not self._seen.add(number):
            self._notes.traits["number_used_twice"] += 1
            return
        self._told.at(number + 1)
        at = moment_of(record.get("time"), self._notes)
        yield from self._tell(kind, data, record, at)

    def _requested(self, kind: str, data: Mapping[str, Any]) -> None:
        """What the next request goes to; a fork's first one may still follow its parent's words."""
        config = mapping(mapping(data.get("header")).get("config")) if kind == "request/header" else data
        self._model = identifier(config.get("model"), 256) or self._model
        self._provider = identifier(config.get("provider"), 128) or self._provider

    def _tell(
        self, kind: str, data: Mapping[str, Any], record: dict[str, Any], at: str | None
    ) -> Iterator[Envelope]:
        told = self._told
        if kind == "turn/start":
            self._turn = identified("turn", count(data.get("turn")))
            yield told.event("turn.started", {}, at=at, turn=self._turn)
        elif kind == "turn/end":
            reason = mapping(data.get("reason"))
            status = ENDINGS.get(text(reason.get("kind")) or "", "failed")
            said = text(reason.get("message")) or text(mapping(reason.get("error")).get("message"))
            yield told.event("turn.completed", saying.ended(status, said), at=at, turn=self._of(data))
        elif kind == "user/message":
            if mapping(data.get("source")).get("kind") == "user":
                said = saying.text_of(data.get("content"))
                yield told.event("message.recorded", saying.message("user", said), at=at, turn=self._turn)
            else:
                self._notes.untold["user/message (put in by the harness)"] += 1
        elif kind == "assistant/chunk":
            chunk = mapping(data.get("chunk"))
            if chunk.get("type") == "usage":
                self._streamed[self._place(data)] = mapping(chunk.get("usage"))
            self._notes.untold[kind] += 1
        elif kind in ("assistant/message", "assistant/attempt"):
            yield from self._attempt(kind, data, at)
        elif kind == "llm/retry":
            yield from self._retry(data, at)
        elif kind == "llm/retry-started":
            self._streamed.pop(self._place(data), None)
            self._notes.untold[kind] += 1
        elif kind in ("tool/call", "tool/result"):
            yield self._tool(kind, data, at)
        elif kind in UNTOLD:
            self._notes.untold[kind] += 1
        else:
            self._notes.unknown[kind] += 1
            name, payload = saying.unknown(PRODUCER, kind, record)
            yield told.event(name, payload, at=at, turn=self._of(data))

    def _of(self, data: Mapping[str, Any]) -> str | None:
        return identified("turn", count(data.get("turn"))) or self._turn

    def _place(self, data: Mapping[str, Any]) -> tuple[str | None, int | None]:
        return self._of(data), count(data.get("step"))

    def _call_id(self, place: tuple[str | None, int | None]) -> str | None:
        return self._attempt_id(place, self._attempts[self._step(place)])

    @staticmethod
    def _attempt_id(place: tuple[str | None, int | None], attempt: int) -> str | None:
        return identified(place[0] or "turn", place[1] if place[1] is not None else 0, attempt)

    def _step(self, place: tuple[str | None, int | None]) -> int:
        """The number of a step among those that were spoken of."""
        number = self._steps.add(f"{place[0]} {place[1]}")
        if number == len(self._attempts):
            self._attempts.append(0)
        return number

    def _attempt(self, kind: str, data: Mapping[str, Any], at: str | None) -> Iterator[Envelope]:
        """One request to the model that was settled: with a message, or without."""
        told, place = self._told, self._place(data)
        self._attempts[self._step(place)] += 1
        call, turn = self._call_id(place), place[0]
        message = mapping(data.get("message"))
        source = mapping(message.get("source")) or mapping(data.get("provenance"))
        given = data.get("usage") if isinstance(data.get("usage"), dict) else _in_stream(data.get("stream"))
        streamed = self._streamed.pop(place, None)
        usage = usage_of(given if given is not None else streamed)
        facts = known(
            {
                "provider": identifier(source.get("provider"), 128) or self._provider,
                "model": identifier(source.get("model"), 256) or self._model,
                "message_id": identifier(message.get("id")),
                "token_convention": "exclusive",
                "source": "event",
                "usage": usage,
            }
        )
        if kind == "assistant/attempt":
            failed = saying.failure(text(mapping(data.get("failure")).get("message")), kind="cut", **facts)
            yield told.event("model_call.failed", failed, at=at, call=call, turn=turn)
            return
        yield told.event("model_call.completed", facts, at=at, call=call, turn=turn)
        content = objects(message.get("content")) or objects(data.get("content"))
        said = saying.text_of([block for block in content if block.get("type") == "text"])
        if said is not None and said.strip():
            yield told.event(
                "message.recorded", saying.message("assistant", said), at=at, call=call, turn=turn
            )
            if not any(block.get("type") == "tool-call" for block in content):
                yield told.event("answer.finalized", saying.answer(said), at=at, call=call, turn=turn)

    def _retry(self, data: Mapping[str, Any], at: str | None) -> Iterator[Envelope]:
        place, failure = self._place(data), mapping(data.get("failure"))
        said, code = text(failure.get("message")), text(failure.get("code"))
        kind = str(saying.failure(" ".join(filter(None, (code, said))) or None)["error_class"])
        payload = known(
            {
                "attempt": count(data.get("retry")),
                "max_attempts": count(data.get("maxRetries")),
                "delay_ms": whole(data.get("delayMs")),
                "error_class": kind,
                "provider": identifier(data.get("provider"), 128),
            }
        )
        # The attempt that follows is the call that was tried before.
        call = self._attempt_id(place, self._attempts[self._step(place)] + 1)
        yield self._told.event("model_call.retried", payload, at=at, call=call, turn=place[0])

    def _tool(self, kind: str, data: Mapping[str, Any], at: str | None) -> Envelope:
        place = self._place(data)
        tool = identifier(data.get("callId"))
        if kind == "tool/call":
            asked = saying.requested(data.get("name"), parsed(data.get("arguments")))
            return self._told.event(
                "tool_call.requested", asked, at=at, call=self._call_id(place), tool=tool, turn=place[0]
            )
        message = mapping(data.get("message"))
        said = saying.text_of(data.get("content")) or saying.text_of(message.get("content"))
        failed = data.get("isError") is True or message.get("isError") is True
        tool = tool or identifier(message.get("callId")) or identifier(message.get("toolCallId"))
        result = saying.completed(failed, said)
        return self._told.event("tool_call.completed", result, at=at, tool=tool, turn=place[0])


def _in_stream(stream: Any) -> Mapping[str, Any] | None:
    """The last usage among the pieces that a message or an attempt holds."""
    for piece in reversed(objects(stream)):
        chunk = mapping(piece.get("chunk"))
        if piece.get("type") == "chunk" and chunk.get("type") == "usage":
            return mapping(chunk.get("usage"))
    return None


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one log."""
    header: Mapping[str, Any] | None = None
    inherited = -1
    for record in source.records():
        value = record.value
        if header is None and value.get("type") == "session":
            header = value
        elif value.get("type") == "session/end-seed" and mapping(value.get("data")).get("inherited") is True:
            inherited = max(inherited, count(value.get("seq")) or -1)
    session = identifier(mapping(header).get("id"), SESSION_LIMIT) or source.session
    if session is None:
        notes.traits["session_unknown"] += 1
        return
    head = mapping(header)
    seeded = count(head.get("seedLength"))
    if (
        (count(head.get("version")) or 0) <= 1
        and seeded
        and identifier(head.get("parentSession")) is not None
    ):
        inherited = max(inherited, seeded - 1)
    if head.get("isSeeded") is True and inherited < 0:
        inherited = GREATEST  # the mark behind the copied history is not written yet
    log = _Log(head, session, notes, inherited)
    yield from log.opened()
    for record in source.records():
        if record.value is not header and record.value.get("type") != "session":
            yield from log.event(record.value)


FORMAT = Format(
    name=PRODUCER,
    title="DeepSeek Harness",
    files="~/.dsh/sessions/<folder>/<session>/session[.v<n>].jsonl[.zstd]",
    versions="session formats 0–4 (described)",
    usage="exact, per attempt, retried ones too",
    cost="none",
    latency="none",
    tools="requests and results",
    turns="turn/start and turn/end",
    cannot="sessions in its optional SQLite store; the tokens of an attempt that reported none",
    lines=read,
    recognises=recognises,
)
