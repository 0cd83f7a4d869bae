"""Owns what a Pi session file means in events: a tree of entries in, envelopes out, abandoned branches and all.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from turnledger.contract.times import instant
from turnledger.harness import saying
from turnledger.harness.chains import Chains
from turnledger.harness.facts import (
    PREVIEW_LIMIT,
    SESSION_LIMIT,
    Envelope,
    Notes,
    count,
    identified,
    identifier,
    known,
    mapping,
    moment_of,
    money,
    objects,
    put_text,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.reading import Record
from turnledger.harness.sources import Source
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "pi"
OUTPUT_VERSION = 1
ROLES = frozenset(
    {"user", "assistant", "toolResult", "bashExecution", "custom", "compactionSummary", "branchSummary"}
)
UNTOLD = frozenset(
    {
        "model_change",
        "thinking_level_change",
        "branch_summary",
        "custom",
        "custom_message",
        "label",
        "session_info",
    }
)
_UUID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:\.jsonl)?$")


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be an entry of a Pi session."""
    kind = record.get("type")
    if kind == "session":
        return (
            isinstance(record.get("id"), str) and isinstance(record.get("timestamp"), str) and "cwd" in record
        )
    if kind == "message":
        return text(mapping(record.get("message")).get("role")) in ROLES and "timestamp" in record
    return kind == "model_change" and "modelId" in record


def usage_of(value: Any) -> dict[str, int] | None:
    """The provider's counters; None where none is known or all are zero, as they are when a call was aborted."""
    given = mapping(value)
    names = {
        "input": "input",
        "output": "output",
        "cache_read": "cacheRead",
        "cache_write": "cacheWrite",
        "reasoning": "reasoning",
    }
    found = known({ours: count(given.get(theirs)) for ours, theirs in names.items()})
    return found if any(found.values()) else None


class _File:
    """One file: its header and links first, then its entries, each by itself."""

    def __init__(self, source: Source, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._chains = Chains()
        self._header: Mapping[str, Any] = {}
        previous: str | None = None
        unsaid = Notes()
        for record in source.records():
            if record.value.get("type") == "session" and not self._header:
                self._header = record.value
                continue
            key = self._key(record)
            # Entries of the first version have no ids: each follows the one before it.
            parent = identifier(record.value.get("parentId")) if "id" in record.value else previous
            if _role(record.value) == "user":
                self._chains.add(key, parent, turn=key, at=_time(record.value, unsaid))
            else:
                self._chains.add(key, parent)
            previous = key
        began = moment_of(self._header.get("timestamp"), Notes())
        self._began = instant(began) if began is not None else None
        self._parent = _session_in(self._header.get("parentSession")) or _session_in(
            self._header.get("branchedFrom")
        )

    @staticmethod
    def _key(record: Record) -> str:
        return identifier(record.value.get("id")) or f"entry-{record.number}"

    def events(self) -> Iterator[Envelope]:
        """Everything that the file tells."""
        session = identifier(self._header.get("id"), SESSION_LIMIT) or self._source.session
        if session is None:
            for _record in self._source.records():
                pass  # read to the end: what could not be read is counted all the same
            self._notes.traits["session_unknown"] += 1
            return
        told = Told(PRODUCER, OUTPUT_VERSION, session)
        yield from told.declared()
        yield from self._opened(told)
        header = False
        for record in self._source.records():
            if record.value.get("type") == "session" and not header:
                header = True
                continue
            yield from self._entry(told, record)

    def _opened(self, told: Told) -> Iterator[Envelope]:
        at = moment_of(self._header.get("timestamp"), self._notes)
        facts = known({"agent": PRODUCER, "cwd": identifier(self._header.get("cwd"), 4096)})
        yield told.event("session.started", facts, key="session", rank=STARTED, at=at)
        if self._parent is not None and self._parent != told.session:
            yield told.event(
                "session.forked",
                {"parent_session_id": self._parent},
                key="fork",
                rank=STARTED,
                at=at,
                parent=self._parent,
            )

    def _entry(self, told: Told, record: Record) -> Iterator[Envelope]:
        entry, key = record.value, self._key(record)
        at = _time(entry, self._notes)
        turn = self._chains.turn_of(key, at)
        copied = self._copied(at)
        kind = text(entry.get("type")) or "?"
        for event in self._events(told, kind, entry, key, at, turn):
            if copied:
                event["provenance"] = "inherited"
            yield event
        if copied:
            self._notes.traits["copied_history"] += 1

    def _copied(self, at: str | None) -> bool:
        """A branch begins with its parent's entries: they are older than the file's header, and belong to the parent."""
        when = instant(at) if at is not None else None
        return (
            self._parent is not None and self._began is not None and when is not None and when < self._began
        )

    def _events(
        self, told: Told, kind: str, entry: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        if kind == "message":
            yield from self._message(told, mapping(entry.get("message")), key, at, turn)
        elif kind == "compaction":
            payload = known({"strategy": "summary", "tokens_before": count(entry.get("tokensBefore"))})
            put_text(payload, "summary", text(entry.get("summary")), PREVIEW_LIMIT)
            yield told.event("context.compacted", payload, key=key, at=at, turn=turn)
        elif kind in UNTOLD:
            self._notes.untold[kind] += 1
        else:
            self._notes.unknown[kind] += 1
            name, payload = saying.unknown(PRODUCER, kind, dict(entry))
            yield told.event(name, payload, key=key, at=at, turn=turn)

    def _message(
        self, told: Told, message: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        role, said = message.get("role"), saying.text_of(message.get("content"))
        if role == "user":
            yield told.event(
                "turn.started", saying.started(said), key=f"{key}:turn", rank=STARTED, at=at, turn=key
            )
            yield told.event("message.recorded", saying.message("user", said), key=key, at=at, turn=key)
        elif role == "assistant":
            yield from self._assistant(told, message, key, at, turn)
        elif role == "toolResult":
            result = saying.completed(message.get("isError") is True, said, name=message.get("toolName"))
            yield told.event(
                "tool_call.completed",
                result,
                key=key,
                at=at,
                tool=identifier(message.get("toolCallId")),
                turn=turn,
            )
        elif role == "bashExecution":
            yield from _bash(told, message, key, at, turn)
        else:
            self._notes.untold[f"message/{role if isinstance(role, str) else '?'}"] += 1

    def _assistant(
        self, told: Told, message: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        stop, error = text(message.get("stopReason")), text(message.get("errorMessage"))
        cost = money(mapping(mapping(message.get("usage")).get("cost")).get("total"))
        facts = known(
            {
                "provider": identifier(message.get("provider"), 128),
                "protocol": identifier(message.get("api"), 128),
                "model": identifier(message.get("model"), 256),
                "message_id": identifier(message.get("responseId")),
                "token_convention": "exclusive",
                "source": "event",
                "usage": usage_of(message.get("usage")),
                "reported_cost_usd": cost,
            }
        )
        if stop in ("error", "aborted"):
            failed = saying.failure(
                error, kind="cut" if stop == "aborted" else None, stop_reason=stop, **facts
            )
            yield told.event("model_call.failed", failed, key=key, at=at, call=key, turn=turn)
            if failed["error_class"] == "rate_limit":
                yield told.event("limit.reached", {"limit": "rate"}, key=f"{key}:limit", at=at, turn=turn)
        else:
            done = {**facts, **known({"stop_reason": stop})}
            yield told.event("model_call.completed", done, key=key, at=at, call=key, turn=turn)
        blocks = objects(message.get("content"))
        said = saying.text_of([block for block in blocks if block.get("type") == "text"])
        if said is not None and said.strip():
            yield told.event(
                "message.recorded", saying.message("assistant", said), key=f"{key}:text", at=at, call=key
            )
        for place, block in enumerate(block for block in blocks if block.get("type") == "toolCall"):
            tool = identifier(block.get("id")) or identified(key, place)
            asked = saying.requested(block.get("name"), block.get("arguments"))
            yield told.event(
                "tool_call.requested", asked, key=f"{key}:tool:{place}", at=at, call=key, tool=tool, turn=turn
            )
        yield from _end(told, stop, error, said, key, at, turn)


def _end(
    told: Told,
    stop: str | None,
    error: str | None,
    said: str | None,
    key: str,
    at: str | None,
    turn: str | None,
) -> Iterator[Envelope]:
    """An answer ends its turn, and so does a failure: what is tried again afterwards ends it again."""
    if stop in ("stop", "length") and said is not None and said.strip():
        yield told.event(
            "answer.finalized",
            saying.answer(said),
            key=f"{key}:answer",
            rank=ANSWERED,
            at=at,
            call=key,
            turn=turn,
        )
    status = {"stop": "completed", "length": "completed", "error": "failed", "aborted": "interrupted"}.get(
        stop or ""
    )
    if status is not None and turn is not None:
        yield told.event(
            "turn.completed", saying.ended(status, error), key=f"{key}:end", rank=ENDED, at=at, turn=turn
        )


def _bash(
    told: Told, message: Mapping[str, Any], key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    """A command that the user typed: the harness ran it, no model asked for it."""
    started: dict[str, Any] = {"exec_id": key, "source": "user"}
    put_text(started, "command", text(message.get("command")) or "", PREVIEW_LIMIT)
    yield told.event("process.started", started, key=key, at=at, turn=turn)
    payload = known({"exec_id": key, "exit_code": count(message.get("exitCode"))})
    put_text(payload, "stdout_preview", text(message.get("output")), PREVIEW_LIMIT)
    yield told.event("process.exited", payload, key=f"{key}:exit", rank=6, at=at, turn=turn)


def _role(entry: Mapping[str, Any]) -> str | None:
    return text(mapping(entry.get("message")).get("role")) if entry.get("type") == "message" else None


def _time(entry: Mapping[str, Any], notes: Notes) -> str | None:
    """The message's own time, which a copy keeps; else the entry's."""
    own = moment_of(mapping(entry.get("message")).get("timestamp"), notes)
    return own if own is not None else moment_of(entry.get("timestamp"), notes)


def _session_in(value: Any) -> str | None:
    """The session that a header names as its parent: an id, or the path of a file that ends with one."""
    if isinstance(value, dict):
        value = value.get("sessionId", value.get("id", value.get("sessionPath")))
    name = text(value)
    if name is None:
        return None
    match = _UUID.search(name)
    if match is not None:
        return match.group(1)
    return None if "/" in name or "\\" in name else identifier(name, SESSION_LIMIT)


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one session file."""
    yield from _File(source, notes).events()


FORMAT = Format(
    name=PRODUCER,
    title="Pi",
    files="~/.pi/agent/sessions/--<folder>--/<time>_<session>.jsonl",
    versions="format 3 (real files), 1 and 2 (described)",
    usage="exact, per message; aborted calls with zeros are unknown",
    cost="reported, per message",
    latency="none",
    tools="requests and results by id",
    turns="user entries by the parent chain; ends by stop reason",
    cannot="retries; the tokens of compaction and branch summaries; the end of the session",
    lines=read,
    recognises=recognises,
)
