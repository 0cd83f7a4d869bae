"""Owns what an event file of GitHub Copilot CLI means in events: the file of a session, or a captured ``--output-format json`` stream.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
from turnledger.harness.sources import Source
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "copilot-cli"
OUTPUT_VERSION = 1
PROVIDER = "github-copilot"
FAMILIES = (
    "session.",
    "user.",
    "assistant.",
    "tool.",
    "subagent.",
    "model.",
    "permission.",
    "skill.",
    "hook.",
    "system.",
)
UNTOLD = frozenset(
    {
        "session.info",
        "session.context_changed",
        "session.task_complete",
        "session.usage_checkpoint",
        "session.usage_info",
        "session.title_changed",
        "session.idle",
        "session.mode_changed",
        "assistant.turn_start",
        "assistant.intent",
        "assistant.reasoning",
        "assistant.reasoning_delta",
        "assistant.message_delta",
        "assistant.streaming_delta",
        "model.call_start",
        "tool.execution_partial_result",
        "tool.execution_progress",
        "permission.requested",
        "skill.invoked",
        "hook.start",
        "hook.end",
        "system.message",
        "result",
    }
)


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be an event of Copilot CLI."""
    kind = record.get("type")
    return (
        isinstance(kind, str)
        and kind.startswith(FAMILIES)
        and isinstance(record.get("data"), dict)
        and isinstance(record.get("id"), str)
        and "timestamp" in record
    )


def usage_of(data: Mapping[str, Any]) -> dict[str, int] | None:
    """The counters of one call or of a shutdown's sums."""
    names = {
        "input": "inputTokens",
        "output": "outputTokens",
        "cache_read": "cacheReadTokens",
        "cache_write": "cacheWriteTokens",
        "reasoning": "reasoningTokens",
    }
    found = known({ours: count(data.get(theirs)) for ours, theirs in names.items()})
    return found if any(found.values()) else None


class _File:
    """One file: its links first, then its events, each by itself."""

    def __init__(self, source: Source, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._chains = Chains()
        self._session: str | None = None
        self._model: str | None = None
        self._per_call: set[str] = set()
        unsaid = Notes()
        for record in source.records():
            value, data = record.value, mapping(record.value.get("data"))
            key = identifier(value.get("id"))
            if self._session is None:
                self._session = identifier(data.get("sessionId"), SESSION_LIMIT)
            if key is not None:
                opened = self._opens(value, data, key)
                at = moment_of(value.get("timestamp"), unsaid) if opened is not None else None
                self._chains.add(key, identifier(value.get("parentId")), turn=opened, at=at)

    @staticmethod
    def _opens(value: Mapping[str, Any], data: Mapping[str, Any], key: str) -> str | None:
        if value.get("type") != "user.message" or not _is_human(data):
            return None
        return identifier(data.get("interactionId")) or key

    def events(self) -> Iterator[Envelope]:
        """Everything that the file tells."""
        session = self._session or self._source.session
        if session is None:
            for _record in self._source.records():
                pass  # read to the end: what could not be read is counted all the same
            self._notes.traits["session_unknown"] += 1
            return
        told = Told(PRODUCER, OUTPUT_VERSION, session)
        yield from told.declared()
        for record in self._source.records():
            value, data = record.value, mapping(record.value.get("data"))
            key = identifier(value.get("id"))
            kind = text(value.get("type")) or "?"
            if key is None:
                where = self._notes.untold if kind in UNTOLD else self._notes.traits
                where[kind if kind in UNTOLD else "record_without_id"] += 1
                continue
            at = moment_of(value.get("timestamp"), self._notes)
            turn = identifier(data.get("interactionId")) or self._chains.turn_of(key, at)
            yield from self._events(told, kind, value, data, key, at, turn)

    def _events(
        self,
        told: Told,
        kind: str,
        value: dict[str, Any],
        data: Mapping[str, Any],
        key: str,
        at: str | None,
        turn: str | None,
    ) -> Iterator[Envelope]:
        if kind.startswith("session.") and kind not in UNTOLD:
            yield from self._of_session(told, kind, value, data, key, at, turn)
        elif kind == "user.message":
            yield from self._user(told, data, key, at)
        elif kind == "assistant.message":
            yield from self._assistant(told, data, key, at, turn)
        elif kind == "assistant.usage":
            yield from self._usage(told, data, key, at, turn)
        elif kind == "assistant.turn_end":
            # A turn of theirs is one step; the last one of an interaction ends what the user began.
            if turn is not None:
                yield told.event(
                    "turn.completed", saying.ended("completed"), key=key, rank=ENDED, at=at, turn=turn
                )
        elif kind == "abort":
            if turn is not None:
                ended = saying.ended("interrupted")
                yield told.event("turn.completed", ended, key=key, rank=ENDED, at=at, turn=turn)
            else:
                self._notes.traits["end_of_a_turn_outside_this_file"] += 1
        elif kind.startswith("tool.") and kind not in UNTOLD:
            yield from self._tool(told, kind, data, key, at, turn, value)
        elif kind.startswith("subagent."):
            yield self._subagent(told, kind, data, key, at, turn)
        elif kind == "permission.completed":
            yield from self._permission(told, data, key, at, turn)
        elif kind in UNTOLD:
            self._notes.untold[kind] += 1
        else:
            yield self._unknown(told, kind, value, key, at, turn)

    def _unknown(
        self, told: Told, kind: str, value: dict[str, Any], key: str, at: str | None, turn: str | None
    ) -> Envelope:
        self._notes.unknown[kind] += 1
        name, payload = saying.unknown(PRODUCER, kind, value)
        return told.event(name, payload, key=key, at=at, turn=turn)

    def _of_session(
        self,
        told: Told,
        kind: str,
        value: dict[str, Any],
        data: Mapping[str, Any],
        key: str,
        at: str | None,
        turn: str | None,
    ) -> Iterator[Envelope]:
        if kind in ("session.start", "session.resume"):
            self._model = identifier(data.get("selectedModel"), 256) or self._model
            facts = known(
                {
                    "agent": PRODUCER,
                    "agent_version": identifier(data.get("copilotVersion"), 128),
                    "model": self._model,
                    "cwd": identifier(mapping(data.get("context")).get("cwd"), 4096),
                }
            )
            name = "session.started" if kind == "session.start" else "session.resumed"
            yield told.event(name, facts, key=key, rank=STARTED, at=at)
        elif kind == "session.model_change":
            self._model = identifier(data.get("newModel"), 256) or self._model
            self._notes.untold[kind] += 1
        elif kind == "session.error":
            call = identifier(data.get("providerCallId")) or key
            said = text(data.get("message"))
            failed = saying.failure(said, status=count(data.get("statusCode")), provider=PROVIDER)
            yield told.event("model_call.failed", failed, key=key, at=at, call=call, turn=turn)
            if failed["error_class"] == "rate_limit":
                yield told.event("limit.reached", {"limit": "rate"}, key=f"{key}:limit", at=at, turn=turn)
        elif kind in ("session.compaction_complete", "session.truncation"):
            payload = known(
                {
                    "strategy": "summary" if kind.endswith("complete") else "truncation",
                    "tokens_before": count(data.get("preCompactionTokens", data.get("preTruncationTokens"))),
                    "tokens_after": count(data.get("postCompactionTokens", data.get("postTruncationTokens"))),
                }
            )
            yield told.event("context.compacted", payload, key=key, at=at, turn=turn)
        elif kind == "session.compaction_start":
            yield told.event("context.compaction_started", {}, key=key, at=at, turn=turn)
        elif kind == "session.shutdown":
            yield from self._shutdown(told, data, key, at)
        else:
            yield self._unknown(told, kind, value, key, at, turn)

    def _shutdown(self, told: Told, data: Mapping[str, Any], key: str, at: str | None) -> Iterator[Envelope]:
        """The sums of the process, by model: the only place of input tokens on disk. The output stands in the messages too and is left to them."""
        for name, metrics in mapping(data.get("modelMetrics")).items():
            model, usage = identifier(name, 256), usage_of(mapping(mapping(metrics).get("usage")))
            if model is None or usage is None:
                self._notes.traits["shutdown_without_figures"] += 1
                continue
            if model in self._per_call:
                self._notes.untold["session.shutdown beside assistant.usage"] += 1
                continue
            report = known(
                {
                    "counter_kind": "cumulative",
                    "usage_stream": identified("shutdown", model),
                    "usage": {
                        each: usage[each] for each in ("input", "cache_read", "cache_write") if each in usage
                    },
                    "token_convention": "inclusive",
                    "source": "event",
                    "provider": PROVIDER,
                    "model": model,
                }
            )
            if report["usage"]:
                yield told.event("usage.reported", report, key=f"{key}:{model}", at=at)
        yield told.event("session.ended", {"status": "stopped"}, key=f"{key}:end", rank=ENDED, at=at)

    def _user(self, told: Told, data: Mapping[str, Any], key: str, at: str | None) -> Iterator[Envelope]:
        said = text(data.get("content"))
        if not _is_human(data):
            self._notes.untold["user.message (put in by the harness)"] += 1
            return
        turn = identifier(data.get("interactionId")) or key
        yield told.event(
            "turn.started", saying.started(said), key=f"{key}:turn", rank=STARTED, at=at, turn=turn
        )
        yield told.event("message.recorded", saying.message("user", said), key=key, at=at, turn=turn)

    def _assistant(
        self, told: Told, data: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        call = identifier(data.get("apiCallId")) or identifier(data.get("messageId")) or key
        output = count(data.get("outputTokens"))
        fields = known(
            {
                "provider": PROVIDER,
                "model": identifier(data.get("model"), 256) or self._model,
                "request_id": identifier(data.get("requestId")),
                "token_convention": "inclusive",
                "source": "event",
                "usage": {"output": output} if output else None,
            }
        )
        yield told.event("model_call.completed", fields, key=key, at=at, call=call, turn=turn)
        said = text(data.get("content"))
        if said is not None and said.strip():
            yield told.event(
                "message.recorded",
                saying.message("assistant", said),
                key=f"{key}:text",
                at=at,
                call=call,
                turn=turn,
            )
        requests = objects(data.get("toolRequests"))
        for place, each in enumerate(requests):
            tool = identifier(each.get("toolCallId")) or identified(key, place)
            asked = saying.requested(each.get("name"), each.get("arguments"))
            yield told.event(
                "tool_call.requested",
                asked,
                key=f"{key}:tool:{place}",
                at=at,
                call=call,
                tool=tool,
                turn=turn,
            )
        if not requests and said is not None and said.strip():
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
                    "turn.completed",
                    saying.ended("completed"),
                    key=f"{key}:end",
                    rank=ENDED,
                    at=at,
                    turn=turn,
                )

    def _usage(
        self, told: Told, data: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        """One call's own figures: the best there are, in captured streams alone."""
        model = identifier(data.get("model"), 256)
        usage = usage_of(data)
        if usage is None:
            self._notes.traits["usage_without_figures"] += 1
            return
        if model is not None:
            self._per_call.add(model)
        call = identifier(data.get("apiCallId")) or key
        fields = known(
            {
                "provider": PROVIDER,
                "model": model,
                "token_convention": "inclusive",
                "source": "response",
                "latency_ms": whole(data.get("duration")),
                "usage": usage,
            }
        )
        yield told.event("model_call.completed", fields, key=key, at=at, call=call, turn=turn)

    def _tool(
        self,
        told: Told,
        kind: str,
        data: Mapping[str, Any],
        key: str,
        at: str | None,
        turn: str | None,
        value: dict[str, Any],
    ) -> Iterator[Envelope]:
        tool = identifier(data.get("toolCallId"))
        if kind == "tool.execution_start":
            name = known({"tool_name": identifier(data.get("toolName"), 256)})
            yield told.event("tool_call.started", name, key=key, at=at, tool=tool, turn=turn)
        elif kind == "tool.execution_complete":
            result, error = data.get("result"), data.get("error")
            said = (
                text(result)
                or text(mapping(result).get("content"))
                or saying.text_of(mapping(result).get("contents"))
            )
            failed = data.get("success") is False
            reason = text(error) or text(mapping(error).get("message"))
            payload = saying.completed(
                failed, reason if failed and reason else said, name=data.get("toolName")
            )
            if mapping(error).get("code") in ("rejected", "denied"):
                yield told.event(
                    "tool_call.denied",
                    saying.denied("user", reason),
                    key=key,
                    rank=6,
                    at=at,
                    tool=tool,
                    turn=turn,
                )
                return
            yield told.event("tool_call.completed", payload, key=key, rank=6, at=at, tool=tool, turn=turn)
        else:
            yield self._unknown(told, kind, value, key, at, turn)

    def _permission(
        self, told: Told, data: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        outcome = text(mapping(data.get("result")).get("kind")) or ""
        tool = identifier(data.get("toolCallId"))
        if outcome.startswith("denied") and tool is not None:
            by = "user" if "user" in outcome or "interactively" in outcome else "policy"
            yield told.event(
                "tool_call.denied", saying.denied(by, outcome), key=key, at=at, tool=tool, turn=turn
            )
        else:
            self._notes.untold["permission.completed"] += 1

    def _subagent(
        self, told: Told, kind: str, data: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Envelope:
        agent = (
            identifier(data.get("agentName"), 128) or identifier(data.get("agentDisplayName"), 128) or "agent"
        )
        tool = identifier(data.get("toolCallId"))
        if kind == "subagent.started":
            return told.event("subagent.started", {"agent": agent}, key=key, at=at, tool=tool, turn=turn)
        status = kind.removeprefix("subagent.")
        return told.event(
            "subagent.finished", {"agent": agent, "status": status}, key=key, at=at, tool=tool, turn=turn
        )


def _is_human(data: Mapping[str, Any]) -> bool:
    """A message that a skill or the harness put in names its source."""
    source = text(data.get("source"))
    return source is None or source in ("user", "human")


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one file."""
    yield from _File(source, notes).events()


FORMAT = Format(
    name=PRODUCER,
    title="GitHub Copilot CLI",
    files="~/.copilot/session-state/<session>/events.jsonl, or a captured --output-format json",
    versions="0.0.354 (real file), streams of mid-2026 (described)",
    usage="captured stream: exact, per call; on disk: output per message, input as sums at shutdown, none after a crash",
    cost="none (premium requests are no money)",
    latency="captured stream: per call",
    tools="requests, starts, results, refusals",
    turns="interactions, else user messages by the parent chain",
    cannot="input tokens before a shutdown; whether a shutdown counts one run or all, except by falling sums",
    lines=read,
    recognises=recognises,
)
