"""Owns what an event of the second generation of OpenHands means: records with ids, told each by itself, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from turnledger.harness import saying
from turnledger.harness.chains import Chains
from turnledger.harness.facts import (
    PREVIEW_LIMIT,
    Envelope,
    Notes,
    count,
    identifier,
    known,
    mapping,
    moment_of,
    parsed,
    put_text,
    text,
)
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

KINDS = frozenset(
    {
        "SystemPromptEvent",
        "MessageEvent",
        "ActionEvent",
        "ObservationEvent",
        "UserRejectObservation",
        "AgentErrorEvent",
        "Condensation",
        "CondensationRequest",
        "CondensationSummaryEvent",
        "PauseEvent",
        "ConversationErrorEvent",
        "ConversationStateUpdateEvent",
        "TokenEvent",
    }
)
UNTOLD = frozenset({"SystemPromptEvent", "CondensationRequest", "CondensationSummaryEvent", "TokenEvent"})
STATES = {"finished": "completed", "error": "failed", "stuck": "failed", "paused": "interrupted"}
COUNTERS = {
    "input": "prompt_tokens",
    "output": "completion_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
"""Our counters by those of an ``accumulated_token_usage``: the input contains the cached part."""


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be an event of the second generation."""
    return text(record.get("kind")) in KINDS and "source" in record and isinstance(record.get("id"), str)


def counters(value: Any) -> dict[str, int] | None:
    """The counters of an accumulated usage; None where none is known or all are zero."""
    given = mapping(value)
    found = known({ours: count(given.get(theirs)) for ours, theirs in COUNTERS.items()})
    return found if any(found.values()) else None


def events(records: Callable[[], Iterator[dict[str, Any]]], told: Told, notes: Notes) -> Iterator[Envelope]:
    """The events of one conversation, or of a part of it. ``records`` gives them anew at each call."""
    chains = Chains()
    unsaid = Notes()
    for record in records():
        key = identifier(record.get("id"))
        if key is not None and _is_prompt(record):
            chains.add(key, None, turn=key, at=moment_of(record.get("timestamp"), unsaid))
    yield from told.declared()
    for record in records():
        key, kind = identifier(record.get("id")), text(record.get("kind")) or "?"
        if key is None:
            notes.traits["record_without_id"] += 1
            continue
        at = moment_of(record.get("timestamp"), notes)
        turn = chains.turn_of(key, at)
        yield from _event(told, notes, record, kind, key, at, turn)


def _event(
    told: Told, notes: Notes, record: dict[str, Any], kind: str, key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    if turn is None and _is_end(record, kind):
        notes.traits["end_of_a_turn_outside_this_file"] += 1
    elif kind == "MessageEvent":
        yield from _message(told, record, key, at, turn)
    elif kind == "ActionEvent":
        yield from _action(told, record, key, at, turn)
    elif kind in ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent"):
        yield from _result(told, record, kind, key, at, turn)
    elif kind == "ConversationStateUpdateEvent":
        yield from _state(told, notes, record, key, at, turn)
    elif kind == "Condensation":
        payload: dict[str, Any] = {"strategy": "summary"}
        put_text(payload, "summary", text(record.get("summary")), PREVIEW_LIMIT)
        yield told.event("context.compacted", payload, key=key, at=at, turn=turn)
        yield from _call(told, record, key, at, turn)
    elif kind == "PauseEvent":
        yield told.event("turn.completed", saying.ended("interrupted"), key=key, rank=ENDED, at=at, turn=turn)
    elif kind == "ConversationErrorEvent":
        said = text(record.get("detail")) or text(record.get("code"))
        yield told.event(
            "turn.completed", saying.ended("failed", said), key=key, rank=ENDED, at=at, turn=turn
        )
    elif kind in UNTOLD:
        notes.untold[kind] += 1
    else:
        notes.unknown[kind] += 1
        name, payload = saying.unknown("openhands", kind, record)
        yield told.event(name, payload, key=key, at=at, turn=turn)


def _call(
    told: Told, record: Mapping[str, Any], key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    """The response that an event came from: several events may share one."""
    response = identifier(record.get("llm_response_id"))
    if response is not None:
        done = {"message_id": response, "token_convention": "inclusive"}
        yield told.event("model_call.completed", done, key=f"{key}:call", at=at, call=response, turn=turn)


def _message(
    told: Told, record: Mapping[str, Any], key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    said = saying.text_of(mapping(record.get("llm_message")).get("content"))
    if _is_prompt(record):
        yield told.event(
            "turn.started", saying.started(said), key=f"{key}:turn", rank=STARTED, at=at, turn=key
        )
        yield told.event("message.recorded", saying.message("user", said), key=key, at=at, turn=key)
        return
    yield from _call(told, record, key, at, turn)
    call = identifier(record.get("llm_response_id"))
    yield told.event(
        "message.recorded", saying.message("assistant", said), key=key, at=at, call=call, turn=turn
    )
    if record.get("source") == "agent" and said is not None and said.strip():
        yield told.event(
            "answer.finalized",
            saying.answer(said),
            key=f"{key}:answer",
            rank=ANSWERED,
            at=at,
            call=call,
            turn=turn,
        )
        if turn is not None:
            yield told.event(
                "turn.completed", saying.ended("completed"), key=f"{key}:end", rank=ENDED, at=at, turn=turn
            )


def _action(
    told: Told, record: Mapping[str, Any], key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    yield from _call(told, record, key, at, turn)
    call = identifier(record.get("llm_response_id"))
    said = saying.text_of(record.get("thought"))
    if said is not None and said.strip():
        yield told.event(
            "message.recorded",
            saying.message("assistant", said),
            key=f"{key}:text",
            at=at,
            call=call,
            turn=turn,
        )
    arguments = mapping(record.get("tool_call")).get("arguments")
    asked = saying.requested(
        record.get("tool_name"), parsed(arguments) if arguments else record.get("action")
    )
    tool = identifier(record.get("tool_call_id")) or key
    yield told.event("tool_call.requested", asked, key=key, at=at, call=call, tool=tool, turn=turn)
    if record.get("tool_name") == "finish":
        answer = text(mapping(record.get("action")).get("message"))
        if answer is not None:
            yield told.event(
                "answer.finalized",
                saying.answer(answer),
                key=f"{key}:answer",
                rank=ANSWERED,
                at=at,
                call=call,
                turn=turn,
            )


def _result(
    told: Told, record: Mapping[str, Any], kind: str, key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    tool = identifier(record.get("tool_call_id")) or identifier(record.get("action_id"))
    if kind == "UserRejectObservation":
        reason = text(record.get("rejection_reason"))
        yield told.event(
            "tool_call.denied", saying.denied("user", reason), key=key, rank=6, at=at, tool=tool, turn=turn
        )
        return
    observation = mapping(record.get("observation"))
    code = observation.get("exit_code")
    failed = (
        kind == "AgentErrorEvent"
        or observation.get("is_error") is True
        or (type(code) is int and code not in (0, -1))
    )
    said = text(record.get("error")) or saying.text_of(observation.get("content"))
    result = saying.completed(failed, said, name=record.get("tool_name"))
    yield told.event("tool_call.completed", result, key=key, rank=6, at=at, tool=tool, turn=turn)


def _state(
    told: Told, notes: Notes, record: Mapping[str, Any], key: str, at: str | None, turn: str | None
) -> Iterator[Envelope]:
    name, value = record.get("key"), record.get("value")
    if name in ("stats", "full_state"):
        metrics = mapping(value).get("stats") if name == "full_state" else value
        for usage_id, each in mapping(mapping(metrics).get("usage_to_metrics")).items():
            usage = counters(mapping(each).get("accumulated_token_usage"))
            stream = identifier(usage_id)
            if usage is None or stream is None:
                notes.untold["stats without figures"] += 1
                continue
            report = known(
                {
                    "counter_kind": "cumulative",
                    "usage_stream": stream,
                    "usage": usage,
                    "token_convention": "inclusive",
                    "source": "event",
                    "model": identifier(mapping(each).get("model_name"), 256),
                }
            )
            yield told.event("usage.reported", report, key=f"{key}:{stream}", at=at, turn=turn)
    elif name == "execution_status" and isinstance(value, str) and value in STATES:
        yield told.event("turn.completed", saying.ended(STATES[value]), key=key, rank=ENDED, at=at, turn=turn)
    else:
        notes.untold["ConversationStateUpdateEvent"] += 1


def _is_end(record: Mapping[str, Any], kind: str) -> bool:
    """Whether an event says nothing but that a turn ended: without the turn it would end one that nobody began."""
    if kind == "ConversationStateUpdateEvent":
        return record.get("key") == "execution_status" and text(record.get("value")) in STATES
    return kind in ("PauseEvent", "ConversationErrorEvent")


def _is_prompt(record: Mapping[str, Any]) -> bool:
    return record.get("kind") == "MessageEvent" and record.get("source") == "user"
