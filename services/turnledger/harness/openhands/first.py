"""Owns what a trajectory of the first generation of OpenHands means: numbered events, two token counters side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turnledger.harness import saying
from turnledger.harness.facts import (
    GREATEST,
    PREVIEW_LIMIT,
    Envelope,
    Notes,
    count,
    identifier,
    known,
    mapping,
    moment_of,
    objects,
    parsed,
    put_text,
    text,
)
from turnledger.harness.openhands.second import counters
from turnledger.harness.telling import EVENTS_A_RECORD, Numbered

UNTOLD = frozenset(
    {
        "system",
        "recall",
        "null",
        "change_agent_state",
        "think",
        "pause",
        "resume",
        "condensation_request",
        "agent_think",
        "success",
    }
)
STATES = {
    "awaiting_user_input": "completed",
    "finished": "completed",
    "error": "failed",
    "stopped": "interrupted",
    "paused": "interrupted",
}


def events(
    records: Iterable[Any], session: str, producer: str, version: int, notes: Notes
) -> Iterator[Envelope]:
    """The events of one trajectory. An event's number is its own ``id``, so a longer export extends the shorter one."""
    yield from _Trajectory(Numbered(producer, version, session, "main"), notes).events(records)


class _Trajectory:
    def __init__(self, told: Numbered, notes: Notes) -> None:
        self._told = told
        self._notes = notes
        self._turn: str | None = None
        self._calls: set[str] = set()
        self._numbers: set[int] = set()

    def events(self, records: Iterable[Any]) -> Iterator[Envelope]:
        self._told.at(0)
        yield self._told.event("stream.declared", {"density": "sparse"})
        for record in records:
            if not isinstance(record, dict):
                self._notes.traits["event_not_an_object"] += 1
                continue
            number = count(record.get("id"))
            if number is None or number >= GREATEST // EVENTS_A_RECORD - 1:
                self._notes.traits["event_without_number"] += 1
                continue
            if number in self._numbers:
                self._notes.traits["number_used_twice"] += 1
                continue
            self._numbers.add(number)
            self._told.at(number + 1)
            at = moment_of(record.get("timestamp"), self._notes)
            yield from self._event(record, number, at)

    def _event(self, record: dict[str, Any], number: int, at: str | None) -> Iterator[Envelope]:
        action, observation = text(record.get("action")), text(record.get("observation"))
        yield from self._usage(record, at, of_action=action is not None)
        metadata = mapping(record.get("tool_call_metadata"))
        call = yield from self._call(metadata, at)
        if action == "message":
            yield from self._message(record, number, at, call)
        elif action == "finish":
            yield from self._finish(record, at, call)
        elif action == "condensation":
            payload: dict[str, Any] = {"strategy": "summary"}
            put_text(payload, "summary", text(mapping(record.get("args")).get("summary")), PREVIEW_LIMIT)
            yield self._told.event("context.compacted", payload, at=at, turn=self._turn)
        elif action is not None and metadata:
            asked = saying.requested(metadata.get("function_name"), _arguments(metadata, record))
            tool = identifier(metadata.get("tool_call_id"))
            yield self._told.event("tool_call.requested", asked, at=at, call=call, tool=tool, turn=self._turn)
        elif observation == "agent_state_changed":
            yield from self._state(record, at)
        elif observation is not None and metadata:
            yield self._result(record, observation, metadata, at)
        elif (action or observation) in UNTOLD or action is not None or observation is not None:
            self._notes.untold[action or observation or "?"] += 1
        else:
            self._notes.unknown["?"] += 1
            name, payload = saying.unknown("openhands", "event", record)
            yield self._told.event(name, payload, at=at, turn=self._turn)

    def _usage(self, record: Mapping[str, Any], at: str | None, *, of_action: bool) -> Iterator[Envelope]:
        """The agent's counter stands on its actions and holds everything; an editor's observation carries a part of it once more."""
        accumulated = mapping(mapping(record.get("llm_metrics")).get("accumulated_token_usage"))
        usage = counters(accumulated)
        if usage is None:
            return
        if not of_action:
            self._notes.traits["counter_of_a_part"] += 1
            return
        model = identifier(accumulated.get("model"), 256)
        report = known(
            {
                "counter_kind": "cumulative",
                "usage_stream": identifier(f"counter:{model or 'default'}"),
                "usage": usage,
                "token_convention": "inclusive",
                "source": "event",
                "model": model if model != "default" else None,
            }
        )
        yield self._told.event("usage.reported", report, at=at, turn=self._turn)

    def _call(self, metadata: Mapping[str, Any], at: str | None) -> Any:
        """The response stands on each of its actions and on their observations: told once."""
        response = mapping(metadata.get("model_response"))
        call = identifier(response.get("id"))
        if call is None or call in self._calls:
            return call
        self._calls.add(call)
        given = mapping(response.get("usage"))
        details = mapping(given.get("prompt_tokens_details"))
        usage = known(
            {
                "input": count(given.get("prompt_tokens")),
                "output": count(given.get("completion_tokens")),
                "cache_read": count(details.get("cached_tokens")),
                "total": count(given.get("total_tokens")),
            }
        )
        choices = objects(response.get("choices"))
        done = known(
            {
                "model": identifier(response.get("model"), 256),
                "message_id": call,
                "token_convention": "inclusive",
                "stop_reason": text(choices[0].get("finish_reason")) if choices else None,
                "usage": usage if any(usage.values()) else None,
            }
        )
        yield self._told.event("model_call.completed", done, at=at, call=call, turn=self._turn)
        return call

    def _message(
        self, record: Mapping[str, Any], number: int, at: str | None, call: str | None
    ) -> Iterator[Envelope]:
        said = text(mapping(record.get("args")).get("content")) or text(record.get("message"))
        if record.get("source") == "user":
            self._turn = f"event-{number}"
            yield self._told.event("turn.started", saying.started(said), at=at, turn=self._turn)
            yield self._told.event("message.recorded", saying.message("user", said), at=at, turn=self._turn)
        else:
            yield self._told.event(
                "message.recorded", saying.message("assistant", said), at=at, call=call, turn=self._turn
            )

    def _finish(self, record: Mapping[str, Any], at: str | None, call: str | None) -> Iterator[Envelope]:
        arguments = mapping(record.get("args"))
        said = (
            text(arguments.get("final_thought"))
            or text(arguments.get("thought"))
            or text(record.get("message"))
        )
        if said is not None:
            yield self._told.event("answer.finalized", saying.answer(said), at=at, call=call, turn=self._turn)
        yield self._told.event("turn.completed", saying.ended("completed"), at=at, turn=self._turn)

    def _state(self, record: Mapping[str, Any], at: str | None) -> Iterator[Envelope]:
        state = text(mapping(record.get("extras")).get("agent_state"))
        if state == "rate_limited":
            yield self._told.event("limit.reached", {"limit": "rate"}, at=at, turn=self._turn)
        elif state in STATES and self._turn is not None:
            reason = text(mapping(record.get("extras")).get("reason"))
            yield self._told.event(
                "turn.completed",
                saying.ended(STATES[state], reason if STATES[state] == "failed" else None),
                at=at,
                turn=self._turn,
            )
        else:
            self._notes.untold["agent_state_changed"] += 1

    def _result(
        self, record: Mapping[str, Any], observation: str, metadata: Mapping[str, Any], at: str | None
    ) -> Envelope:
        extras = mapping(record.get("extras"))
        tool, said = identifier(metadata.get("tool_call_id")), text(record.get("content"))
        if observation == "user_rejected":
            return self._told.event(
                "tool_call.denied", saying.denied("user", said), at=at, tool=tool, turn=self._turn
            )
        code = mapping(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
        failed = observation == "error" or (type(code) is int and code not in (0, -1))
        result = saying.completed(failed, said, name=metadata.get("function_name"))
        return self._told.event("tool_call.completed", result, at=at, tool=tool, turn=self._turn)


def _arguments(metadata: Mapping[str, Any], record: Mapping[str, Any]) -> Any:
    """What the model wrote, where the response holds it; else what the harness made of it."""
    own = metadata.get("tool_call_id")
    for choice in objects(mapping(metadata.get("model_response")).get("choices")):
        for each in objects(mapping(choice.get("message")).get("tool_calls")):
            if each.get("id") == own and own is not None:
                return parsed(mapping(each.get("function")).get("arguments"))
    return record.get("args")
