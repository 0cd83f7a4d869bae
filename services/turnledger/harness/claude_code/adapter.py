"""Owns what a Claude Code session file means in events: records in, envelopes out, pure and independent of the order of lines.

``README.md`` beside this file says where each figure comes from. A line is never a call: every line of one ``message.id`` is an
observation of that call, and the fold's rank (contract 8) picks the best.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from turnledger.harness.claude_code import links as reading
from turnledger.harness.claude_code.links import Links
from turnledger.harness.facts import (
    ID_LIMIT,
    SESSION_LIMIT,
    Envelope,
    Notes,
    count,
    cut,
    digest,
    identifier,
    joined,
    known,
    mapping,
    moment,
    objects,
    put_text,
    put_value,
    text,
    whole,
)
from turnledger.harness.format import Format, Records
from turnledger.harness.sources import Source

PRODUCER = "claude-code"
OUTPUT_VERSION = 1
"""The epoch of what this reader writes (design 7): a reader that says the same differently counts it up."""
MESSAGE_LIMIT = 2048
"""Bytes of an error message."""
KEY_BYTES = 400
"""Of a record's id that go into the key; its hash covers the rest."""
TYPE_BYTES = 128

MAIN, SIDECHAIN = "main", "sidechain"

UNTOLD = frozenset(
    {
        "summary",
        "file-history-snapshot",
        "queue-operation",
        "pr-link",
        "ai-title",
        "custom-title",
        "last-prompt",
        "permission-mode",
        "mode",
        "attachment",
        "agent-name",
        "tag",
        "progress",
    }
)
"""Record types that are known and tell nothing that the contract has an event for."""
SUBTYPES = frozenset(
    {
        "api_error",
        "compact_boundary",
        "informational",
        "local_command",
        "microcompact_boundary",
        "stop_hook_summary",
        "turn_duration",
    }
)

ERRORS = {
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "authentication_failed": "auth",
    "oauth_org_not_allowed": "auth",
}
STATUSES = {
    401: "auth",
    403: "auth",
    408: "timeout",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_STATUS = re.compile(r"API Error: ([45][0-9]{2})\b")
ROOTED = frozenset(("assistant", "user", "system", "progress"))
"""Record types that tell something."""
ANSWERED = ("end_turn", "stop_sequence")


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be one of Claude Code's: other harnesses write ``sessionId`` and ``type`` too, but other messages."""
    kind = record.get("type")
    if kind in ("user", "assistant"):
        return "sessionId" in record and "content" in mapping(record.get("message"))
    if kind == "system":
        return "sessionId" in record and text(record.get("subtype")) in SUBTYPES
    if kind == "file-history-snapshot":
        return "snapshot" in record
    if kind == "summary":
        return "leafUuid" in record
    return isinstance(kind, str) and kind in UNTOLD and "sessionId" in record


def envelopes(
    records: Iterable[dict[str, Any]], notes: Notes, *, tool_of_agent: str | None = None
) -> Iterator[Envelope]:
    """The events of one file.

    ``records`` is gone through twice. ``tool_of_agent``: the tool call that started the sub-agent whose file this is, where a
    ``meta.json`` beside it says so.
    """
    return Telling(notes, tool_of_agent).of(records)


class Telling:
    """One file being told while it grows: its links, and what has been declared."""

    def __init__(self, notes: Notes, tool_of_agent: str | None) -> None:
        self._links = Links(())
        self._file = _File(self._links, notes, tool_of_agent)

    def of(self, records: Iterable[dict[str, Any]]) -> Iterator[Envelope]:
        """The events of records, which are gone through twice."""
        self._links.extend(records)
        read = self._file.read
        for record in records:
            yield from read(record)

    def more(self, records: Records) -> Iterator[Envelope]:
        """See :class:`turnledger.harness.format.Telling`."""
        return self.of(_Values(records))


@dataclass(frozen=True, slots=True)
class _Values:
    """The records of a source, each time anew: a file is never held whole."""

    records: Records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (record.value for record in self.records(()))


def _follow(source: Source, notes: Notes) -> Telling:
    return Telling(notes, _tool_of_agent(source.path))


def _read(source: Source, notes: Notes) -> Iterator[Envelope]:
    return _follow(source, notes).more(lambda _having: source.records())


def _tool_of_agent(path: Path) -> str | None:
    """The tool call that started a sub-agent, from the small file that newer Claude Code writes beside the sub-agent's own."""
    name = path.name.split(".jsonl", 1)[0]
    beside = path.with_name(f"{name}.meta.json")
    if not name.startswith("agent-") or not beside.is_file():
        return None
    try:
        meta = orjson.loads(beside.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None  # it only adds a link; the sub-agent then has a turn of its own
    return identifier(meta.get("toolUseId")) if isinstance(meta, dict) else None


class _File:
    """One file being read: its links, and what has been declared already. Nothing else is carried from record to record."""

    def __init__(self, links: Links, notes: Notes, tool_of_agent: str | None) -> None:
        self._links = links
        self._notes = notes
        self._tool_of_agent = tool_of_agent
        self._said: set[tuple[str, ...]] = set()

    def read(self, record: dict[str, Any]) -> list[Envelope]:
        session = identifier(record.get("sessionId"), SESSION_LIMIT)
        kind = text(record.get("type")) or "?"
        if session is None:
            where = self._notes.untold if kind in UNTOLD else self._notes.traits
            where[kind if kind in UNTOLD else "record_without_session"] += 1
            return []
        return _Line(self, session, record, kind).events()

    @property
    def links(self) -> Links:
        return self._links

    @property
    def notes(self) -> Notes:
        return self._notes

    @property
    def tool_of_agent(self) -> str | None:
        return self._tool_of_agent

    def first(self, *what: str) -> bool:
        """Whether this is said for the first time in this file."""
        if what in self._said:
            return False
        self._said.add(what)
        return True


class _Line:
    """One record being told."""

    def __init__(self, file: _File, session: str, record: dict[str, Any], kind: str) -> None:
        self._file = file
        self._session = session
        self._record = record
        self._kind = kind
        self._agent = reading.agent_of(record)
        self._uuid = identifier(record.get("uuid"))
        self._at = moment(record.get("timestamp"))
        if self._agent is not None:
            self._stream = f"subagent:{self._agent}"
        else:
            self._stream = SIDECHAIN if reading.is_sidechain(record) else MAIN
        self._turn = None if self._agent is not None else file.links.turn_of(record)
        self._ordinal = 0

    def events(self) -> list[Envelope]:
        """Everything that the record tells."""
        told: list[Envelope] = []
        if self._kind in ROOTED or self._kind in UNTOLD:
            if self._record.get("parentUuid", "") is None:
                told += self._root()
            self._tell(told)
        else:
            self._file.notes.unknown[self._kind] += 1
            payload: dict[str, Any] = {}
            put_value(payload, "record", self._record)
            told.append(
                self._event(cut(f"claude_code.{self._kind}", TYPE_BYTES)[0], payload, turn=self._turn)
            )
        if told and self._file.first(self._session, self._stream):
            return [*self._declare(), *told]
        return told

    def _tell(self, told: list[Envelope]) -> None:
        if self._kind == "assistant":
            told += self._assistant()
        elif self._kind == "user":
            told += self._user()
        elif self._kind == "system":
            told += self._system()
        elif self._kind == "progress":
            told += self._progress()
        else:
            self._file.notes.untold[self._kind] += 1

    def _declare(self) -> Iterator[Envelope]:
        """What is said before the first event of a stream."""
        yield self._seal(
            {"stream": self._stream, "type": "stream.declared", "payload": {"density": "unknown"}}, "stream"
        )
        agent, tool = self._agent, self._file.tool_of_agent
        if agent is not None and tool is not None:
            yield from self._agent_started(agent, tool, self._file.links.first_seen(agent))

    def _agent_started(self, agent: str, tool: str, at: str | None) -> Iterator[Envelope]:
        """What ties a sub-agent's work, all of which carries its trace, to the tool call that started it."""
        if self._file.first(self._session, "agent", agent, tool):
            started = {
                "stream": MAIN,
                "type": "subagent.started",
                "occurred_at": at,
                "tool_call_id": tool,
                "trace_id": f"agent:{agent}",
                "payload": {"agent": agent},
            }
            yield self._seal(known(started), f"agent:{agent}")

    def _root(self) -> Iterator[Envelope]:
        """A record without a parent begins the session, or begins it anew after a rewind to its start."""
        record = self._record
        if record.get("parentUuid", "") is not None or record.get("isSidechain") is True or self._at is None:
            return
        if identifier(record.get("logicalParentUuid")) is not None or self._agent is not None:
            return
        payload = known(
            {
                "agent": PRODUCER,
                "agent_version": identifier(record.get("version"), 128),
                "cwd": identifier(record.get("cwd"), 4096),
                "mode": identifier(record.get("entrypoint"), 128),
            }
        )
        yield self._event("session.started", payload)

    def _assistant(self) -> Iterator[Envelope]:
        record = self._record
        message = mapping(record.get("message"))
        if record.get("isApiErrorMessage") is True:
            yield from self._failure(message)
            return
        if message.get("model") == reading.SYNTHETIC:
            self._file.notes.traits["synthetic_message"] += 1
            return
        call = identifier(message.get("id"))
        yield from self._attempts(call)
        if call is None:
            self._file.notes.traits["assistant_without_message_id"] += 1
        yield from self._call(message, call)
        payload: dict[str, Any] = {"role": "assistant"}
        put_text(payload, "text", joined(message.get("content")))
        if "text" in payload and payload["text"].strip():
            # Never with the chain's turn: its call leads there, and a slice that begins mid-turn then tells the same message.
            yield self._event(
                "message.recorded", payload, call=call, turn=None if call is not None else self._turn
            )
        if message.get("stop_reason") in ANSWERED:
            yield from self._answer(payload, call)

    def _attempts(self, call: str | None) -> Iterator[Envelope]:
        """The ``api_error`` lines name no call; the line that follows them does."""
        attempt = self._file.links.attempts_before(self._record)
        if attempt is not None and call is not None:
            event = self._event("model_call.retried", {"attempt": attempt}, call=call, turn=self._turn)
            del event["receipt_key"]
            yield self._seal({**event, "provenance": "derived"}, f"{self._uuid or call}:A")

    def _call(self, message: Any, call: str | None) -> Iterator[Envelope]:
        """One observation of the call, and the tools that this line of it asks for."""
        stop = text(message.get("stop_reason"))
        model = identifier(message.get("model"), 256)
        fields = known(
            {
                "provider": provider_of(model),
                "protocol": "anthropic",
                "model": model,
                "message_id": call,
                "request_id": identifier(self._record.get("requestId")),
                "stop_reason": stop,
                "token_convention": "exclusive",
                "source": "transcript",
                "usage": usage_of(message.get("usage")),
            }
        )
        if stop is not None:
            yield self._event("model_call.completed", fields, call=call, turn=self._turn)
        else:
            fields.update(counter_kind="snapshot", final=False)
            yield self._event("usage.reported", fields, call=call, turn=self._turn)
        if "iterations" in mapping(message.get("usage")):
            yield from self._advisors(message, call)
        for block in objects(message.get("content")):
            if block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
                yield self._requested(block, call)

    def _advisors(self, message: Any, call: str | None) -> Iterator[Envelope]:
        """Iterations with a model of their own stand outside the message's sums: calls of their own."""
        iterations = mapping(message.get("usage")).get("iterations")
        for place, each in enumerate(iterations if isinstance(iterations, list) else ()):
            if not isinstance(each, dict) or each.get("type") != "advisor_message" or call is None:
                continue
            model = identifier(each.get("model"), 256)
            fields = known(
                {
                    "provider": provider_of(model),
                    "model": model,
                    "token_convention": "exclusive",
                    "source": "transcript",
                    "counter_kind": "snapshot",
                    "final": False,
                    "usage": usage_of(each),
                }
            )
            yield self._event(
                "usage.reported", fields, call=cut(f"{call}#{place}", ID_LIMIT)[0], turn=self._turn
            )

    def _requested(self, block: dict[str, Any], call: str | None) -> Envelope:
        name = identifier(block.get("name"), 256)
        payload: dict[str, Any] = known({"tool_name": name})
        server = (
            name.split("__")[1]
            if name is not None and name.startswith("mcp__") and name.count("__") >= 2
            else None
        )
        if server is not None:
            payload.update(call_tool_origin="mcp", server_name=server)
        else:
            payload["call_tool_origin"] = "native"
        put_value(payload, "arguments", block.get("input"))
        tool = identifier(block.get("id"))
        return self._event("tool_call.requested", payload, call=call, tool=tool, turn=self._turn)

    def _answer(self, message: dict[str, Any], call: str | None) -> Iterator[Envelope]:
        if message.get("text", "").strip():
            payload = {
                **{name: value for name, value in message.items() if name != "role"},
                "exact": "truncated" not in message,
            }
            yield self._event("answer.finalized", payload, call=call, turn=self._turn)
        if self._turn is not None:
            yield from self._end({"status": "completed"})

    def _failure(self, message: Any) -> Iterator[Envelope]:
        """A call that failed for good: the line is the harness's own, so its id and its zeros are not the provider's."""
        said = joined(message.get("content"))
        error = text(self._record.get("error"))
        match = _STATUS.search(said or "")
        status = int(match.group(1)) if match is not None else None
        error_class = ERRORS.get(error or "") or STATUSES.get(status or 0, "other")
        payload: dict[str, Any] = known(
            {"provider": "anthropic", "error_class": error_class, "status_code": status}
        )
        put_text(payload, "message", said, MESSAGE_LIMIT)
        call = identifier(message.get("id")) or self._uuid
        yield from self._attempts(call)
        yield self._event("model_call.failed", payload, call=call, turn=self._turn)
        if error_class == "rate_limit":
            yield self._event("limit.reached", {"limit": "rate"}, call=call, turn=self._turn)
        if self._turn is not None:
            ended: dict[str, Any] = {"status": "failed"}
            put_text(ended, "error", said, MESSAGE_LIMIT)
            yield from self._end(ended)

    def _user(self) -> Iterator[Envelope]:
        record = self._record
        results = [block for block in reading.blocks_of(record) if block.get("type") == "tool_result"]
        for block in results:
            yield from self._result(block, record.get("toolUseResult") if len(results) == 1 else None)
        if results:
            return
        if reading.is_interrupt(record):
            yield from self._end({"status": "interrupted"})
        elif reading.is_command_output(record):
            if self._turn is not None:
                yield from self._end({"status": "completed"})
        elif reading.is_typed(record):
            yield from self._prompt()
        else:
            self._file.notes.untold["user (put in by the harness)"] += 1

    def _prompt(self) -> Iterator[Envelope]:
        typed = reading.user_text(self._record)
        turn = reading.opens_turn(self._record)
        if turn is not None:
            started: dict[str, Any] = {}
            put_text(started, "input_preview", typed)
            yield self._event("turn.started", started, turn=turn)
        payload: dict[str, Any] = {"role": "user"}
        put_text(payload, "text", typed)
        yield self._event("message.recorded", payload, turn=turn or self._turn)

    def _result(self, block: dict[str, Any], outcome: Any) -> Iterator[Envelope]:
        tool = identifier(block.get("tool_use_id"))
        said = joined(block.get("content"))
        details = mapping(outcome)
        refused = _refused(
            said if isinstance(outcome, dict) or outcome is None else f"{outcome}\n{said}", block
        )
        if refused is not None:
            payload: dict[str, Any] = {"by": refused}
            put_text(payload, "reason", said, MESSAGE_LIMIT)
            yield self._event("tool_call.denied", payload, tool=tool, turn=self._turn)
        else:
            failed = block.get("is_error") is True
            duration = whole(details.get("totalDurationMs"))
            payload = known(
                {
                    "status": "error" if failed else "ok",
                    "duration_ms": duration if duration is not None else whole(details.get("durationMs")),
                    "bytes_received": len(said.encode()) if said is not None else None,
                }
            )
            put_text(payload, "preview", said)
            if failed:
                put_text(payload, "error_message", said, MESSAGE_LIMIT)
            yield self._event("tool_call.completed", payload, tool=tool, turn=self._turn)
        agent = identifier(details.get("agentId"), 128)
        if agent is not None and tool is not None:
            status = text(details.get("status"))
            if status in ("completed", "failed", "cancelled"):
                yield self._event(
                    "subagent.finished",
                    {"agent": agent, "status": status},
                    tool=tool,
                    turn=self._turn,
                    trace=f"agent:{agent}",
                )
            else:  # it was started and goes on in the background
                yield from self._agent_started(agent, tool, self._at)

    def _system(self) -> Iterator[Envelope]:
        record = self._record
        kind = record.get("subtype")
        if kind == "api_error":
            yield self._event("model_call.retried", _retry(record), turn=self._turn)
        elif kind == "compact_boundary":
            details = mapping(record.get("compactMetadata"))
            payload = known(
                {
                    "trigger": text(details.get("trigger")),
                    "tokens_before": count(details.get("preTokens")),
                    "tokens_after": count(details.get("postTokens")),
                    "duration_ms": whole(details.get("durationMs")),
                    "strategy": "summary",
                }
            )
            yield self._event("context.compacted", payload, turn=self._turn)
        elif kind == "microcompact_boundary":
            details = mapping(record.get("microcompactMetadata"))
            before, saved = count(details.get("preTokens")), count(details.get("tokensSaved"))
            payload = known(
                {
                    "trigger": text(details.get("trigger")),
                    "tokens_before": before,
                    "tokens_after": before - saved
                    if before is not None and saved is not None and saved <= before
                    else None,
                    "strategy": "tool_outputs_dropped",
                }
            )
            yield self._event("context.compacted", payload, turn=self._turn)
        elif kind == "turn_duration":
            # How the turn went is said by lines above this one: without the prompt, one slice holds them and another does not.
            status = self._file.links.status_of(record) if self._turn is not None else None
            yield from self._end(known({"status": status, "duration_ms": whole(record.get("durationMs"))}))
        elif kind == "stop_hook_summary":
            if self._turn is not None:
                yield from self._end({"status": self._file.links.status_of(record)})
        else:
            self._file.notes.untold[f"system/{text(kind) or '?'}"] += 1

    def _progress(self) -> Iterator[Envelope]:
        """Progress lines of a sub-agent hold its messages whole, and are sometimes all that is left of it."""
        data = mapping(self._record.get("data"))
        agent = identifier(data.get("agentId"), 128)
        embedded = data.get("message")
        if data.get("type") != "agent_progress" or agent is None or not isinstance(embedded, dict):
            self._file.notes.untold["progress"] += 1
            return
        tool = identifier(self._record.get("parentToolUseID"))
        if tool is not None:
            yield from self._agent_started(agent, tool, self._file.links.first_seen(agent))
        inner = {
            **embedded,
            "agentId": agent,
            "isSidechain": True,
            "timestamp": embedded.get("timestamp") or self._record.get("timestamp"),
        }
        kind = text(inner.get("type")) or "?"
        for event in _Line(self._file, self._session, inner, kind).events():
            # The sub-agent's own file tells its messages; calls and tools are the same by their ids wherever they stand.
            if event["type"] not in ("message.recorded", "answer.finalized"):
                yield event

    def _end(self, payload: dict[str, Any]) -> Iterator[Envelope]:
        """The end of a turn. It names its turn and, as a trace, its own record.

        Where the prompt is not in this file, it names the record before it instead: if that told an end too, both are one turn's; else it ends
        what is open at its time. It says no more than its own line does, so that all slices tell it alike.
        """
        if self._agent is not None:
            return
        trace = self._uuid
        if self._turn is None:
            self._file.notes.traits["end_of_a_turn_outside_this_file"] += 1
            trace = identifier(self._record.get("parentUuid"))
        yield self._event("turn.completed", payload, turn=self._turn, trace=trace)

    def _event(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        call: str | None = None,
        tool: str | None = None,
        turn: str | None = None,
        trace: str | None = None,
    ) -> Envelope:
        if trace is None and self._agent is not None:
            trace = f"agent:{self._agent}"
        event: Envelope = {
            "session_id": self._session,
            "producer": PRODUCER,
            "epoch": OUTPUT_VERSION,
            "kind": "import",
            "stream": self._stream,
            "type": kind,
            "payload": payload,
        }
        if self._at is not None:
            event["occurred_at"] = self._at
        if trace is not None:
            event["trace_id"] = trace
        if turn is not None:
            event["turn_id"] = turn
        if call is not None:
            event["model_call_id"] = call
        if tool is not None:
            event["tool_call_id"] = tool
        # Equal times are ordered by key: an end without a turn id comes before the same end with one, and finds its turn open.
        base = f"{self._uuid or self._kind}:{'b' if turn is not None else 'a'}:{self._ordinal:03}"
        self._ordinal += 1
        return _identified(event, base)

    def _seal(self, event: dict[str, Any], base: str) -> Envelope:
        """Identity: the record's id and the hash of what is told. Equal keys are equal events, whatever file they stood in."""
        whole_event = {
            "session_id": self._session,
            "producer": PRODUCER,
            "epoch": OUTPUT_VERSION,
            "kind": "import",
            **event,
        }
        return _identified(whole_event, base)


def _identified(event: Envelope, base: str) -> Envelope:
    key = base if len(base) <= KEY_BYTES // 4 else cut(base, KEY_BYTES)[0]
    event["receipt_key"] = f"{key}:{digest([base, event])}"
    return event


def provider_of(model: str | None) -> str | None:
    """``anthropic`` for Claude models, wherever they run; the file does not say who served another model behind the same protocol."""
    return "anthropic" if model is not None and "claude" in model.lower() else None


def usage_of(value: Any) -> dict[str, int] | None:
    """The provider's counters; None where none is known or all are zero (a proxy that reports nothing).

    A cache counter that is absent or null means that the cache was not used; one of a wrong type is unknown.
    """
    usage = mapping(value)
    split = mapping(usage.get("cache_creation"))
    counters = known(
        {
            "input": count(usage.get("input_tokens")),
            "output": count(usage.get("output_tokens")),
            "cache_read": _cache(usage, "cache_read_input_tokens"),
            "cache_write": _cache(usage, "cache_creation_input_tokens"),
            "cache_write_5m": count(split.get("ephemeral_5m_input_tokens")),
            "cache_write_1h": count(split.get("ephemeral_1h_input_tokens")),
        }
    )
    return counters if any(counters.values()) else None


def _cache(usage: Any, name: str) -> int | None:
    return 0 if usage.get(name) is None else count(usage.get(name))


def _retry(record: dict[str, Any]) -> dict[str, Any]:
    error = mapping(record.get("error"))
    status = count(error.get("status"))
    cause = text(mapping(record.get("cause")).get("code")) or text(error.get("code")) or ""
    error_class = STATUSES.get(status or 0, "other")
    if status is None and cause:
        error_class = "timeout" if "TIMEDOUT" in cause or "Timeout" in cause else "cut"
    return known(
        {
            "attempt": count(record.get("retryAttempt")),
            "max_attempts": count(record.get("maxRetries")),
            "delay_ms": whole(record.get("retryInMs")),
            "error_class": error_class,
            "status_code": status,
            "provider": "anthropic",
        }
    )


def _refused(said: str | None, block: dict[str, Any]) -> str | None:
    """Who refused a tool call, from the sentences that Claude Code writes into its result."""
    if said is None or block.get("is_error") is not True:
        return None
    if said.startswith(("User rejected", "The user doesn't want to proceed with this tool use")):
        return "user"
    if said.startswith(("Permission to use", "Claude requested permissions")):
        return "policy"
    return "guard" if said.startswith("PreToolUse:") and "blocked" in said[:200].lower() else None


FORMAT = Format(
    name=PRODUCER,
    title="Claude Code",
    files="~/.claude/projects/<project>/<session>.jsonl, …/subagents/agent-<id>.jsonl",
    versions="1.0.17–2.1.126 (real files)",
    usage="exact where a line of the call has a stop reason, else lower bound (2.1.12–2.1.42: all calls)",
    cost="none",
    latency="none",
    tools="requests, results, refusals; duration of some",
    turns="prompt id or parent chain; ends by answer, interrupt, failure, turn_duration",
    cannot="calls for titles, some searches and compaction; the end of a session; about a fifth of sub-agents' final usage",
    lines=_read,
    follow=_follow,
    recognises=recognises,
)
