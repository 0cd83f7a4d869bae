"""Owns what a Qwen Code chat file means in events: records with ids and parents in, envelopes out, independent of the order of lines.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from turnledger.harness import saying
from turnledger.harness.chains import Chains
from turnledger.harness.facts import (
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
    text,
    whole,
)
from turnledger.harness.format import Format
from turnledger.harness.keys import Keys, Texts
from turnledger.harness.sources import Source
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "qwen-code"
OUTPUT_VERSION = 1
TYPES = frozenset({"user", "assistant", "tool_result", "system"})
SUBTYPES = frozenset(
    {"ui_telemetry", "chat_compression", "slash_command", "attribution_snapshot", "at_command"}
)
RESPONSE, ERROR, TOOL = "qwen-code.api_response", "qwen-code.api_error", "qwen-code.tool_call"


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be one of Qwen Code's: like Claude Code's, but its messages have ``parts``."""
    kind = text(record.get("type"))
    if "sessionId" not in record or "uuid" not in record:
        return False
    if kind == "system":
        return text(record.get("subtype")) in SUBTYPES and "systemPayload" in record
    return kind in TYPES and isinstance(mapping(record.get("message")).get("parts"), list)


def usage_of(value: Any) -> tuple[dict[str, int] | None, str, str]:
    """(counters, token convention, source): whether thoughts stand inside the output, each record's total says.

    Where it says nothing that fits, the figures are the provider's all the same, but how they add up is an estimate.
    """
    given = mapping(value)
    names = {
        "input": "promptTokenCount",
        "output": "candidatesTokenCount",
        "cache_read": "cachedContentTokenCount",
        "reasoning": "thoughtsTokenCount",
        "total": "totalTokenCount",
    }
    found = known({ours: count(given.get(theirs)) for ours, theirs in names.items()})
    if not any(found.values()):
        return None, "inclusive", "event"
    if "cachedContentTokenCount" not in given:
        found["cache_read"] = 0
    thoughts, both = found.get("reasoning", 0), found.get("input", 0) + found.get("output", 0)
    if not thoughts or found.get("total") == both:
        return found, "inclusive", "event"
    if found.get("total") == both + thoughts:
        return found, "inclusive_thoughts_separate", "event"
    return found, "inclusive", "estimate"


class _File:
    """One file: its links first, then its records, each by itself."""

    def __init__(self, source: Source, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._chains = Chains()
        self._tellers: dict[str, Told] = {}
        self._responses = Keys()
        """The ids of telemetry lines and of what messages follow."""
        self._facts, self._answered = array("I", [0]), bytearray(1)
        """By their numbers: what a telemetry line says of its response, and whether a message follows."""
        self._said = Texts()
        unsaid = Notes()
        for record in source.records():
            self._meet(record.value, unsaid)

    def _meet(self, record: Mapping[str, Any], unsaid: Notes) -> None:
        key = identifier(record.get("uuid"))
        if key is None:
            return
        parent = identifier(record.get("parentUuid"))
        if _is_prompt(record):
            self._chains.add(key, parent, turn=key, at=moment_of(record.get("timestamp"), unsaid))
        else:
            self._chains.add(key, parent)
        event = _telemetry(record)
        if event.get("event.name") == RESPONSE:
            facts = (
                identifier(event.get("response_id")),
                count(event.get("status_code")),
                whole(event.get("duration_ms")),
            )
            self._facts[self._response(key)] = self._said.add(orjson.dumps(facts).decode())
        if record.get("type") == "assistant" and parent is not None:
            self._answered[self._response(parent)] = 1

    def _response(self, key: str) -> int:
        number = self._responses.add(key)
        if number == len(self._facts):
            self._facts.append(0)
            self._answered.append(0)
        return number

    def events(self) -> Iterator[Envelope]:
        """Everything that the file tells."""
        for record in self._source.records():
            yield from self._record(record.value)
        silent = sum(1 for said, met in zip(self._facts, self._answered, strict=True) if said and not met)
        if silent:
            self._notes.traits["telemetry_without_message"] += silent

    def _record(self, record: dict[str, Any]) -> Iterator[Envelope]:
        session = identifier(record.get("sessionId"), SESSION_LIMIT) or self._source.session
        key = identifier(record.get("uuid"))
        if session is None or key is None:
            self._notes.traits["record_without_session" if session is None else "record_without_id"] += 1
            return
        told = self._tellers.setdefault(session, Told(PRODUCER, OUTPUT_VERSION, session))
        at = moment_of(record.get("timestamp"), self._notes)
        turn = self._chains.turn_of(key, at)
        events = list(self._events(told, record, key, at, turn))
        if events:
            yield from told.declared()
        yield from events

    def _events(
        self, told: Told, record: dict[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        kind = text(record.get("type")) or "?"
        if kind == "user":
            yield from self._user(told, record, key, at)
        elif kind == "assistant":
            yield from self._assistant(told, record, key, at, turn)
        elif kind == "tool_result":
            yield from self._results(told, record, key, at, turn)
        elif kind == "system":
            yield from self._system(told, record, key, at, turn)
        else:
            self._notes.unknown[kind] += 1
            name, payload = saying.unknown(PRODUCER, kind, record)
            yield told.event(name, payload, key=key, at=at, turn=turn)

    def _user(self, told: Told, record: dict[str, Any], key: str, at: str | None) -> Iterator[Envelope]:
        if not _is_prompt(record):
            self._notes.untold["user (put in by the harness)"] += 1
            return
        if record.get("parentUuid") is None:
            facts = known(
                {
                    "agent": PRODUCER,
                    "agent_version": identifier(record.get("version"), 128),
                    "cwd": identifier(record.get("cwd"), 4096),
                }
            )
            yield told.event("session.started", facts, key=f"{key}:session", rank=STARTED, at=at)
        said = saying.text_of(mapping(record.get("message")).get("parts"))
        yield told.event(
            "turn.started", saying.started(said), key=f"{key}:turn", rank=STARTED, at=at, turn=key
        )
        yield told.event("message.recorded", saying.message("user", said), key=key, at=at, turn=key)

    def _assistant(
        self, told: Told, record: dict[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        parts = objects(mapping(record.get("message")).get("parts"))
        facts = self._facts[self._responses.get(identifier(record.get("parentUuid")) or "")]
        usage, convention, source = usage_of(record.get("usageMetadata"))
        call = known(
            {
                "model": identifier(record.get("model"), 256),
                "token_convention": convention,
                "source": source,
                "usage": usage,
                "context_window": count(record.get("contextWindowSize")),
            }
        )
        yield told.event("model_call.completed", call, key=key, at=at, call=key, turn=turn)
        if facts:
            message, status, latency = orjson.loads(self._said[facts])
            # The telemetry line says the usage again, which is left out, and what the message's own line lacks.
            seen = known(
                {
                    "model": identifier(record.get("model"), 256),
                    "message_id": message,
                    "status_code": status,
                    "latency_ms": latency,
                    "token_convention": convention,
                }
            )
            yield told.event("model_call.completed", seen, key=f"{key}:telemetry", at=at, call=key, turn=turn)
        said = saying.text_of([part for part in parts if part.get("thought") is not True])
        if said is not None and said.strip():
            yield told.event(
                "message.recorded", saying.message("assistant", said), key=f"{key}:text", at=at, call=key
            )
        calls = [mapping(part.get("functionCall")) for part in parts if "functionCall" in part]
        for place, each in enumerate(calls):
            tool = identifier(each.get("id")) or identified(key, place)
            asked = saying.requested(each.get("name"), each.get("args"))
            yield told.event(
                "tool_call.requested", asked, key=f"{key}:tool:{place}", at=at, call=key, tool=tool, turn=turn
            )
        if not calls and said is not None and said.strip():
            yield told.event(
                "answer.finalized",
                saying.answer(said),
                key=f"{key}:answer",
                rank=ANSWERED,
                at=at,
                call=key,
                turn=turn,
            )
            if turn is not None:
                yield told.event(
                    "turn.completed",
                    saying.ended("completed"),
                    key=f"{key}:end",
                    rank=ENDED,
                    at=at,
                    turn=turn,
                )

    def _results(
        self, told: Told, record: dict[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        outcome = mapping(record.get("toolCallResult"))
        responses = [
            mapping(part.get("functionResponse"))
            for part in objects(mapping(record.get("message")).get("parts"))
            if "functionResponse" in part
        ]
        for place, each in enumerate(responses):
            tool = identifier(each.get("id")) or identifier(outcome.get("callId"))
            response = mapping(each.get("response"))
            error, said = text(response.get("error")), text(response.get("output"))
            status = text(outcome.get("status"))
            if status == "cancelled":
                yield told.event(
                    "tool_call.denied",
                    saying.denied("user", error or said),
                    key=f"{key}:{place}",
                    at=at,
                    tool=tool,
                    turn=turn,
                )
                continue
            failed = status == "error" or (status is None and error is not None)
            result = saying.completed(failed, said or error, name=each.get("name"))
            yield told.event("tool_call.completed", result, key=f"{key}:{place}", at=at, tool=tool, turn=turn)

    def _system(
        self, told: Told, record: dict[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        subtype, event = text(record.get("subtype")) or "?", _telemetry(record)
        name = event.get("event.name")
        if name == ERROR:
            failed = saying.failure(
                text(event.get("error_message")) or text(event.get("error")),
                status=count(event.get("status_code")),
                model=identifier(event.get("model"), 256),
                latency_ms=whole(event.get("duration_ms")),
            )
            yield told.event("model_call.failed", failed, key=key, at=at, call=key, turn=turn)
        elif subtype == "chat_compression":
            info = mapping(mapping(record.get("systemPayload")).get("info"))
            payload = known(
                {
                    "strategy": "summary",
                    "tokens_before": count(info.get("originalTokenCount")),
                    "tokens_after": count(info.get("newTokenCount")),
                }
            )
            yield told.event("context.compacted", payload, key=key, at=at, turn=turn)
        else:
            self._notes.untold[f"system/{name if isinstance(name, str) else subtype}"] += 1


def _telemetry(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(record.get("systemPayload")).get("uiEvent"))


def _is_prompt(record: Mapping[str, Any]) -> bool:
    """A user record that a person wrote; newer versions say so, older ones write nothing else."""
    if record.get("type") != "user":
        return False
    provenance = record.get("provenance")
    return provenance in (None, "real_user") or not isinstance(provenance, str)


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one chat file."""
    yield from _File(source, notes).events()


FORMAT = Format(
    name=PRODUCER,
    title="Qwen Code",
    files="~/.qwen/projects/<project>/chats/<session>.jsonl",
    versions="0.13.2–0.21.7 (real files)",
    usage="exact, per message; estimated where the total does not tell whether thoughts stand inside the output",
    cost="none",
    latency="of calls whose telemetry line is in the same file",
    tools="requests, results, cancellations",
    turns="user records by the parent chain; a message without tools ends one",
    cannot="retries that succeeded; the provider behind the endpoint; the end of the session",
    lines=read,
    recognises=recognises,
)
