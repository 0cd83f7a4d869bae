"""Owns what Cline's ``ui_messages.json`` means in events: a list that is rewritten whole, in which a request is first announced and later filled in.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turnledger.harness import saying
from turnledger.harness.documents import Document
from turnledger.harness.facts import (
    Envelope,
    Notes,
    clean,
    count,
    cut,
    identifier,
    known,
    mapping,
    moment_of,
    money,
    named,
    parsed,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.sources import Source
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "cline"
OUTPUT_VERSION = 1
TOOLS = frozenset({"tool", "command", "use_mcp_server", "browser_action_launch"})
UNTOLD = frozenset(
    {
        "api_req_finished",
        "checkpoint_created",
        "checkpoint_saved",
        "reasoning",
        "task_progress",
        "browser_action",
        "browser_action_result",
        "deleted_api_reqs",
        "diff_error",
        "clineignore_error",
        "load_mcp_documentation",
        "mcp_server_request_started",
        "followup",
        "completion_result",
        "plan_mode_respond",
        "resume_completed_task",
        "command_output",
        "mistake_limit_reached",
        "api_req_failed",
        "new_task",
        "info",
        "hook_status",
    }
)
PROMPTS = frozenset({"task", "user_feedback"})


def is_document(document: Document) -> bool:
    """Whether a JSON value is a list of UI messages."""
    return any(_is_message(each) for each in document.items())


def _is_message(value: Any) -> bool:
    message = mapping(value)
    kind = message.get("type")
    return kind in ("say", "ask") and isinstance(message.get(kind), str) and "ts" in message


def usage_of(request: Mapping[str, Any]) -> dict[str, int] | None:
    """The counters of a request: none while it runs, none where the provider gave none."""
    if request.get("usageMissing") is True:
        return None
    names = {
        "input": "tokensIn",
        "output": "tokensOut",
        "cache_read": "cacheReads",
        "cache_write": "cacheWrites",
    }
    found = known({ours: count(request.get(theirs)) for ours, theirs in names.items()})
    if not any(found.values()):
        return None
    for name, theirs in (("cache_read", "cacheReads"), ("cache_write", "cacheWrites")):
        if request.get(theirs) is None:
            found[name] = 0
    return found


class _Task:
    """One task being told, in the order of its messages."""

    def __init__(self, told: Told, notes: Notes, source: Source) -> None:
        self._told = told
        self._notes = notes
        self._source = source
        self._turn: str | None = None
        self._call: str | None = None
        self._requests = 0
        self._tools = 0
        self._running: str | None = None
        self._opened = False

    def events(self, messages: Iterable[Any]) -> Iterator[Envelope]:
        """Everything that the list tells."""
        yield from self._told.declared()
        for message in messages:
            if not isinstance(message, dict):
                self._notes.traits["message_not_an_object"] += 1
                continue
            yield from self._message(message)

    def _message(self, message: Mapping[str, Any]) -> Iterator[Envelope]:
        at = moment_of(message.get("ts"), self._notes)
        kind = text(message.get(str(message.get("type")))) or "?"
        says = message.get("type") == "say"
        said = text(message.get("text"))
        if kind == "api_req_started":
            # Requests share times and are rewritten in place; restoring a checkpoint cuts the list and goes on with other ones.
            key = f"{self._requests:06}:{_stamp(message)}"
            self._requests += 1
            yield from self._request(key, at, message, mapping(parsed(said)))
        elif says and (kind in PROMPTS or (kind == "text" and not self._opened)):
            yield from self._prompt(at, said, message)
        elif message.get("partial") is True:
            self._notes.untold["partial"] += 1
        elif kind in TOOLS:
            yield from self._tool(kind, at, message, said, says=says)
        elif (kind == "command_output" and says and self._running is not None) or (
            kind == "mcp_server_response" and self._running is not None
        ):
            yield from self._output(at, said)
        elif says and kind == "text":
            if said is not None:
                yield self._event(
                    "message.recorded",
                    saying.message("assistant", said),
                    self._key(message),
                    at,
                    call=self._call,
                )
        elif says and kind == "completion_result":
            yield from self._done(at, said, message)
        elif says and kind in ("error_retry", "api_req_retried"):
            yield from self._retried(at, mapping(parsed(said)), message)
        elif says and kind == "condense_context":
            yield from self._condensed(at, message, mapping(parsed(said)))
        elif says and kind == "error":
            self._notes.untold["error"] += 1
        elif kind in ("resume_task", "resume_completed_task"):
            yield self._told.event("session.resumed", {"agent": PRODUCER}, key=self._key(message), at=at)
        elif kind in UNTOLD:
            self._notes.untold[kind] += 1
        else:
            self._notes.unknown[kind] += 1
            name, payload = saying.unknown(PRODUCER, kind, dict(message))
            yield self._event(name, payload, self._key(message), at)

    def _key(self, message: Mapping[str, Any]) -> str:
        return cut(f"{_stamp(message)}:{clean(str(message.get('say') or message.get('ask')))}", 200)[0]

    def _event(
        self,
        kind: str,
        payload: dict[str, Any],
        key: str,
        at: str | None,
        *,
        rank: int = 5,
        call: str | None = None,
        tool: str | None = None,
    ) -> Envelope:
        return self._told.event(
            kind, payload, key=key, rank=rank, at=at, call=call, tool=tool, turn=self._turn
        )

    def _prompt(self, at: str | None, said: str | None, message: Mapping[str, Any]) -> Iterator[Envelope]:
        if not self._opened:
            self._opened = True
            yield self._told.event("session.started", {"agent": PRODUCER}, key="session", rank=STARTED, at=at)
        key = f"prompt:{_stamp(message)}"
        self._turn = key
        yield self._event("turn.started", saying.started(said), f"{key}:turn", at, rank=STARTED)
        yield self._event("message.recorded", saying.message("user", said), key, at)

    def _request(
        self, key: str, at: str | None, message: Mapping[str, Any], request: Mapping[str, Any]
    ) -> Iterator[Envelope]:
        """Announced without figures, rewritten with them in the same place."""
        self._call, self._running = f"request:{key}", None
        model = mapping(message.get("modelInfo"))
        usage, cancelled = usage_of(request), text(request.get("cancelReason"))
        facts = known(
            {
                "provider": identifier(model.get("providerId"), 128),
                "model": identifier(model.get("modelId"), 256),
                "token_convention": "exclusive",
                "source": "event",
                "usage": usage,
                "reported_cost_usd": money(request.get("cost")),
            }
        )
        if cancelled is not None:
            reason = text(request.get("streamingFailedMessage")) or cancelled
            failed = saying.failure(reason, kind="cut" if cancelled == "user_cancelled" else None, **facts)
            yield self._event("model_call.failed", failed, f"{key}:failed", at, call=self._call)
            status = "interrupted" if cancelled == "user_cancelled" else "failed"
            ended = saying.ended(status, reason if status == "failed" else None)
            yield self._event("turn.completed", ended, f"{key}:end", at, rank=ENDED)
        elif usage is not None or request.get("usageMissing") is True:
            yield self._event("model_call.completed", facts, f"{key}:done", at, call=self._call)
        elif self._source.unsettled:
            self._source.hold()  # it is written again in its place, with its figures
        else:
            begun = known({"provider": facts.get("provider", "unknown"), "model": facts.get("model")})
            yield self._event("model_call.started", begun, f"{key}:start", at, call=self._call)

    def _tool(
        self, kind: str, at: str | None, message: Mapping[str, Any], said: str | None, *, says: bool
    ) -> Iterator[Envelope]:
        """A tool that was asked for: by ``ask`` when a person has to agree, by ``say`` when it ran by itself. Nothing has an id."""
        wanted = mapping(parsed(said))
        tool = f"tool:{self._tools:06}:{_stamp(message)}"
        self._tools += 1
        self._running = tool
        name = text(wanted.get("tool")) or text(wanted.get("toolName")) or kind
        arguments: Any = {each: value for each, value in wanted.items() if each != "tool"} or said
        asked = saying.requested(name, arguments, server=identifier(wanted.get("serverName"), 256))
        yield self._event("tool_call.requested", asked, f"{tool}:request", at, call=self._call, tool=tool)
        if kind == "tool" and says:
            yield self._event(
                "tool_call.completed", {"tool_name": name}, f"{tool}:result", at, rank=6, tool=tool
            )
            self._running = None

    def _output(self, at: str | None, said: str | None) -> Iterator[Envelope]:
        tool, self._running = self._running, None
        result = saying.completed(False, said)
        result.pop("status")  # the list has no word on whether it went well
        yield self._event("tool_call.completed", result, f"{tool}:result", at, rank=6, tool=tool)

    def _done(self, at: str | None, said: str | None, message: Mapping[str, Any]) -> Iterator[Envelope]:
        key = self._key(message)
        if said is not None:
            yield self._event(
                "answer.finalized", saying.answer(said), key, at, rank=ANSWERED, call=self._call
            )
        if self._turn is not None:
            yield self._event("turn.completed", saying.ended("completed"), f"{key}:end", at, rank=ENDED)

    def _retried(
        self, at: str | None, retry: Mapping[str, Any], message: Mapping[str, Any]
    ) -> Iterator[Envelope]:
        delay = count(retry.get("delaySeconds"))
        payload = known(
            {
                "attempt": count(retry.get("attempt")) or 1,
                "max_attempts": count(retry.get("maxAttempts")),
                "delay_ms": delay * 1000 if delay is not None else None,
                "error_class": saying.failure(text(retry.get("errorMessage")))["error_class"],
            }
        )
        yield self._event("model_call.retried", payload, self._key(message), at, call=self._call)

    def _condensed(
        self, at: str | None, message: Mapping[str, Any], said: Mapping[str, Any]
    ) -> Iterator[Envelope]:
        own = mapping(message.get("contextCondense")) or said
        payload = known(
            {
                "strategy": "summary",
                "tokens_before": count(own.get("prevContextTokens")),
                "tokens_after": count(own.get("newContextTokens")),
            }
        )
        yield self._event("context.compacted", payload, self._key(message), at)


def _stamp(message: Mapping[str, Any]) -> str:
    """The time of a message as it stands there: a part of its name, whatever it is."""
    return cut(clean(str(message.get("ts"))), 64)[0]


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one task."""
    document = source.document()
    if document is None or not isinstance(document.top, list):
        return
    notes.traits["session_from_name"] += source.session is None
    told = Told(PRODUCER, OUTPUT_VERSION, named(source.session, source.path.absolute().parent.name))
    yield from _Task(told, notes, source).events(document.items())


FORMAT = Format(
    name=PRODUCER,
    title="Cline, Roo Code",
    files="<editor storage>/tasks/<task>/ui_messages.json",
    versions="Cline 3, Roo Code 3 (described)",
    usage="exact, per request; none while a request runs or where the provider gave none",
    cost="reported, per request",
    latency="none",
    tools="requests, outputs of commands and MCP servers; not whether they failed",
    turns="the task and each feedback; ends by result, cancellation, failure",
    cannot="its task's id (the folder's name, or --session); ids of requests and tools; the tokens of condensing",
    document=read,
    is_document=is_document,
    hints=((b'"say"', b'"ts"', b"api_req_started"),),
)
