"""Owns what a Codex rollout means in events: records in, envelopes out, each a function of the records before it in its file.

``README.md`` beside this file says where each figure comes from. A rollout is only ever appended to, so an event's number is its record's
number × 256 + its place in the record, and a longer copy of a file extends the shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from turnledger.harness.codex.history import (
    counters,
    is_child,
    kind_of,
    outlined,
    own_from,
    parent_of,
    payload_of,
)
from turnledger.harness.facts import (
    SESSION_LIMIT,
    Envelope,
    Notes,
    clean,
    count,
    cut,
    identifier,
    joined,
    known,
    mapping,
    moment,
    put_text,
    put_value,
    taken_over,
    text,
    whole,
)
from turnledger.harness.format import Anew, Format, Records
from turnledger.harness.reading import Record
from turnledger.harness.sources import Source

PRODUCER = "codex"
OUTPUT_VERSION = 1
"""The epoch of what this reader writes (design 7): a reader that says the same differently counts it up."""
EVENTS_A_RECORD = 256
NEVER = 2**62
"""A record's number that none has."""
TYPE_BYTES = 128
MESSAGE_LIMIT = 2048
"""Bytes of an error message."""
MOST_PERCENT = 1_000_000
"""A share of a rate limit above this is no share."""
HEAD_LINES = 6
"""Lines before a command's own output among which its exit code stands."""
REQUEST_HEADING = "## My request for Codex:"
"""IDE prompts put the open files first and what the user typed behind this heading."""

ENVELOPES = frozenset(
    ["session_meta", "turn_context", "response_item", "event_msg", "compacted", "token_usage_record"]
)
BARE_ITEMS = frozenset(
    [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "local_shell_call",
        "custom_tool_call",
        "custom_tool_call_output",
    ]
)
"""Rollouts before 0.2x hold the items without the envelope."""
UNTOLD = frozenset(
    {
        "response_item/message",
        "response_item/reasoning",
        "response_item/ghost_snapshot",
        "response_item/compaction",
        "response_item/agent_message",
        "response_item/context_compaction",
        "response_item/compaction_summary",
        "response_item/other",
        "event_msg/agent_reasoning",
        "event_msg/agent_reasoning_raw_content",
        "event_msg/agent_reasoning_section_break",
        "event_msg/context_compacted",
        "event_msg/thread_rolled_back",
        "event_msg/web_search_end",
        "event_msg/entered_review_mode",
        "event_msg/exited_review_mode",
        "event_msg/sub_agent_activity",
        "event_msg/item_started",
        "event_msg/thread_name_updated",
    }
)
"""Lines that are known and tell nothing that the contract has an event for, or that another line tells."""


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be a line of a Codex rollout."""
    if text(record.get("type")) in ENVELOPES and isinstance(record.get("payload"), dict):
        return True
    return _bare_header(record) is not None


def envelopes(records: Sequence[Record], notes: Notes) -> Iterator[Envelope]:
    """The events of one rollout that is held whole; none where no line names its thread."""
    return Telling(notes).more(lambda _having: iter(records))


LANDMARKS = (b"session_meta", b"token_usage_record", b"task_started", b"turn_started", b'"instructions"')
"""What stands in the lines from which it is known where a rollout begins, and from where on its calls are recorded one by one."""


class Telling:
    """One rollout being told while it grows: once over the landmarks, once over everything. It is never held whole, save for the outline of one that
    begins with a copy."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._header: Record | None = None
        self._foreign = False
        self._started = 0
        self._recorded_from = NEVER
        self._rollout: _Rollout | None = None
        self._own = 0
        self._begun = False

    def more(self, records: Records) -> Iterator[Envelope]:
        """See :class:`turnledger.harness.format.Telling`."""
        was = (self._foreign, self._recorded_from)
        self._landmarks(records)
        begun, self._begun = self._begun, True
        if begun and self._rollout is None:
            raise Anew
        if self._rollout is not None:
            if was != (self._foreign, self._recorded_from) or self._own:
                raise Anew
            return self._tell(self._rollout, records)
        return self._first(records)

    def _landmarks(self, records: Records) -> None:
        for record in records(LANDMARKS):
            line = _enveloped(record)
            kind = kind_of(line)
            if kind == "session_meta":
                self._header = self._header or line
                meta = payload_of(self._header)
                self._foreign = self._foreign or payload_of(line).get("id") not in (None, meta.get("id"))
            elif kind in ("event_msg/task_started", "event_msg/turn_started"):
                self._started = line.number
            if line.value.get("type") == "token_usage_record" and self._recorded_from == NEVER:
                self._recorded_from = self._started

    def _first(self, records: Records) -> Iterator[Envelope]:
        meta = payload_of(self._header) if self._header is not None else {}
        thread = identifier(meta.get("id"), SESSION_LIMIT - 16)
        if self._header is None or thread is None:
            for _record in records(()):
                pass  # read to the end: what could not be read is counted all the same
            self._notes.traits["thread_unknown"] += 1
            return
        if self._foreign or is_child(meta):
            outline = [outlined(_enveloped(record)) for record in records(())]
            place = own_from(outline, meta)
            self._own = outline[place].number if place < len(outline) else NEVER
        rollout = _Rollout(meta, thread, self._notes, own_from=self._own, recorded_from=self._recorded_from)
        self._rollout = rollout
        yield from self._tell(rollout, records)

    def _tell(self, rollout: _Rollout, records: Records) -> Iterator[Envelope]:
        opens = self._header.number if self._header is not None else NEVER
        for record in records(()):
            yield from rollout.read(_enveloped(record), opens=record.number == opens)


def _bare_header(record: Mapping[str, Any]) -> dict[str, Any] | None:
    if (
        "type" not in record
        and isinstance(record.get("id"), str)
        and "instructions" in record
        and "timestamp" in record
    ):
        return {"type": "session_meta", "timestamp": record["timestamp"], "payload": dict(record)}
    return None


def _enveloped(record: Record) -> Record:
    """The record as later versions write it."""
    value = record.value
    if "payload" in value and "type" in value:  # as all later versions write it
        return record
    header = _bare_header(value)
    if header is not None:
        return Record(record.number, record.offset, header)
    if text(record.value.get("type")) in BARE_ITEMS and "payload" not in record.value:
        return Record(record.number, record.offset, {"type": "response_item", "payload": record.value})
    return record


class _Rollout:
    """One file being read: what the lines so far have said."""

    def __init__(
        self, meta: Mapping[str, Any], thread: str, notes: Notes, *, own_from: int, recorded_from: int
    ) -> None:
        self._thread = thread
        self._meta = meta
        self._notes = notes
        self._parent = parent_of(meta)
        subagent = self._parent is not None or meta.get("thread_source") == "subagent"
        self._stream = f"{thread}:{'subagent' if subagent else 'main'}"
        self._own_from = own_from
        self._recorded_from = recorded_from
        self._turn: str | None = None
        self._turns: set[str] = set()
        self._model: str | None = None
        self._provider = identifier(meta.get("model_provider"), 128) or "openai"
        self._total: dict[str, int] = {}
        self._counter = 0
        self._calls = 0
        self._ends: dict[str, dict[str, Any]] = {}
        self._limits: set[str] = set()
        self._number = 0
        self._ordinal = 0
        self._at: str | None = None

    def read(self, line: Record, *, opens: bool) -> Iterator[Envelope]:
        """The events of one line."""
        self._number, self._ordinal = line.number, 0
        self._at = moment(line.value.get("timestamp"))
        kind, payload = kind_of(line) or "?", payload_of(line)
        if opens:
            yield from self._opened(payload)
        elif line.number < self._own_from:
            yield from self._copied(kind, payload)
        elif kind == "session_meta":
            if payload.get("id") == self._thread:
                yield self._event("session.resumed", _facts(payload))
        elif kind == "turn_context":
            yield from self._context(payload)
        elif kind == "compacted":
            compacted: dict[str, Any] = {"strategy": "summary"}
            put_text(compacted, "summary", text(payload.get("message")))
            yield self._event("context.compacted", compacted)
        elif line.value.get("type") == "token_usage_record":
            yield from self._recorded(payload)
        elif kind == "event_msg/token_count":
            yield from self._limits_of(payload)
            yield from self._counted(payload)
        elif line.value.get("type") == "response_item":
            yield from self._item(kind, payload)
        elif line.value.get("type") == "event_msg":
            yield from self._message(kind, payload)
        else:
            yield from self._other(kind, line.value)

    def _opened(self, meta: Mapping[str, Any]) -> Iterator[Envelope]:
        yield self._event("stream.declared", {"density": "sparse"})
        parent = {"parent_session_id": self._parent} if self._parent is not None else {}
        yield {**self._event("session.started", _facts(meta)), **parent}
        forked = identifier(meta.get("forked_from_id"), SESSION_LIMIT)
        if forked is not None:
            yield {
                **self._event("session.forked", {"parent_session_id": forked}),
                "parent_session_id": forked,
            }

    def _copied(self, kind: str, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        """History of another thread: only its count matters, as the height from which this thread's own begins."""
        self._notes.traits["copied_history"] += 1
        if kind == "turn_context":
            self._model = identifier(payload.get("model"), 256) or self._model
        if kind != "event_msg/token_count":
            return
        info = mapping(payload.get("info"))
        total = counters(info.get("total_token_usage"))
        if total and total != self._total:
            self._total = total
            yield {
                **self._event("usage.reported", self._cumulative(info, total, True)),
                "provenance": "inherited",
            }

    def _context(self, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        self._model = identifier(payload.get("model"), 256) or self._model
        self._provider = identifier(payload.get("model_provider"), 128) or self._provider
        turn = identifier(payload.get("turn_id"))
        if turn is not None:
            yield from self._turn_started(turn, {})

    def _turn_started(self, turn: str, payload: dict[str, Any]) -> Iterator[Envelope]:
        self._turn = turn
        if turn not in self._turns:
            self._turns.add(turn)
            yield self._event("turn.started", payload)

    def _counted(self, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        """A running total. Repeats tell nothing; a decrease is a new counter; what rises is one call, whose own figures are ``last``."""
        info = mapping(payload.get("info"))
        total = counters(info.get("total_token_usage"))
        if not total or not any(total.values()):
            self._notes.untold["token_count without figures"] += 1
            return
        if self._in_recorded():
            self._notes.untold["token_count beside token_usage_record"] += 1
            return
        if total == self._total:
            self._notes.traits["repeated_count"] += 1
            return
        start_known: bool | None = None
        last = counters(info.get("last_token_usage"))
        if any(value < self._total.get(name, 0) for name, value in total.items()):
            self._counter += 1
            self._notes.traits["counter_restarted"] += 1
            start_known = last == total
        self._total = total
        yield self._event("usage.reported", self._cumulative(info, total, start_known))
        self._calls += 1
        call = self._call_fields()
        if any(last.values()):
            call["usage"] = last
        yield {
            **self._event("model_call.completed", call, call=f"call-{self._calls}"),
            "provenance": "derived",
        }

    def _in_recorded(self) -> bool:
        """Whether this count stands in or behind the turn from which on calls are recorded one by one (0.151 and later)."""
        return self._number >= self._recorded_from

    def _cumulative(
        self, info: Mapping[str, Any], total: dict[str, int], start_known: bool | None
    ) -> dict[str, Any]:
        last = counters(info.get("last_token_usage"))
        return known(
            {
                "counter_kind": "cumulative",
                "usage_stream": self._thread if self._counter == 0 else f"{self._thread}#{self._counter}",
                "usage": total,
                "last": last or None,
                "start_known": start_known,
                "token_convention": "inclusive",
                "source": "event",
                "provider": self._provider,
                "model": self._model,
                "context_window": count(info.get("model_context_window")),
            }
        )

    def _call_fields(self) -> dict[str, Any]:
        return known(
            {
                "provider": self._provider,
                "model": self._model,
                "token_convention": "inclusive",
                "source": "event",
            }
        )

    def _recorded(self, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        """One response with its id: exact, and what makes the running totals superfluous."""
        turn = identifier(payload.get("turn_id"))
        response = identifier(payload.get("response_id"))
        fields = {**self._call_fields(), "source": "response"}
        usage = counters(payload.get("usage"))
        fields.update(known({"message_id": response, "usage": usage or None}))
        self._calls += 1
        event = self._event("model_call.completed", fields, call=response or f"call-{self._calls}")
        yield {**event, "turn_id": turn} if turn is not None else event

    def _limits_of(self, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        for window, state in mapping(payload.get("rate_limits")).items():
            used = mapping(state).get("used_percent")
            if not isinstance(used, (int, float)) or isinstance(used, bool) or not 0 <= used <= MOST_PERCENT:
                continue
            if used < 100:
                self._limits.discard(window)
            elif window not in self._limits:
                self._limits.add(window)
                limit = {"limit": "rate", "value": used, "threshold": 100, "window": clean(str(window))}
                yield self._event("limit.reached", limit)

    def _message(self, kind: str, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        turn = identifier(payload.get("turn_id"))
        if kind in ("event_msg/task_started", "event_msg/turn_started"):
            if turn is not None:
                yield from self._turn_started(turn, {})
        elif kind in ("event_msg/task_complete", "event_msg/turn_complete"):
            answer = text(payload.get("last_agent_message"))
            if answer is not None:
                final: dict[str, Any] = {}
                put_text(final, "text", answer)
                yield self._event("answer.finalized", {**final, "exact": "truncated" not in final}, turn=turn)
            done = known({"status": "completed", "duration_ms": whole(payload.get("duration_ms"))})
            yield self._event("turn.completed", done, turn=turn)
        elif kind == "event_msg/turn_aborted":
            status = "interrupted" if payload.get("reason") == "interrupted" else "aborted"
            yield self._event("turn.completed", {"status": status}, turn=turn)
        elif kind == "event_msg/user_message":
            yield from self._user(text(payload.get("message")))
        elif kind == "event_msg/agent_message":
            yield from self._said(text(payload.get("message")), payload.get("phase"))
        elif kind == "event_msg/item_completed":
            item = mapping(payload.get("item"))
            said = text(item.get("text")) or joined(
                item.get("content"), ("text", "Text", "input_text", "output_text")
            )
            if item.get("type") in ("UserMessage", "userMessage"):
                yield from self._user(said)
            elif item.get("type") in ("AgentMessage", "agentMessage"):
                yield from self._said(said, item.get("phase"))
            else:
                self._notes.untold[kind] += 1
        elif kind in (
            "event_msg/mcp_tool_call_end",
            "event_msg/patch_apply_end",
            "event_msg/exec_command_end",
        ):
            yield from self._tool_end(kind, payload)
        elif kind.startswith("event_msg/collab_"):
            child, tool = (
                identifier(payload.get("new_thread_id"), SESSION_LIMIT),
                identifier(payload.get("call_id")),
            )
            if kind == "event_msg/collab_agent_spawn_end" and child is not None:
                agent = identifier(payload.get("new_agent_role"), 128) or "agent"
                yield self._event("subagent.started", {"agent": agent, "child_session_id": child}, tool=tool)
            else:
                self._notes.untold[kind] += 1
        else:
            yield from self._other(kind, payload)

    def _user(self, said: str | None) -> Iterator[Envelope]:
        if said is not None and REQUEST_HEADING in said:
            said = text(said.split(REQUEST_HEADING, 1)[1].strip()) or said
        if self._turn is None:  # before turns had ids, what the user typed opened one
            started: dict[str, Any] = {}
            put_text(started, "input_preview", said)
            yield self._event("turn.started", started)
        payload: dict[str, Any] = {"role": "user"}
        put_text(payload, "text", said)
        yield self._event("message.recorded", payload)

    def _said(self, said: str | None, phase: Any) -> Iterator[Envelope]:
        payload: dict[str, Any] = {"role": "assistant"}
        put_text(payload, "text", said)
        payload.update(known({"phase": identifier(phase, 128)}))
        yield self._event("message.recorded", payload)

    def _item(self, kind: str, item: Mapping[str, Any]) -> Iterator[Envelope]:
        tool = identifier(item.get("call_id")) or identifier(item.get("id"))
        name = item.get("type")
        if name in ("function_call", "custom_tool_call"):
            yield self._requested(
                tool, identifier(item.get("name"), 256), item.get("arguments", item.get("input"))
            )
        elif name == "local_shell_call":
            yield self._requested(tool, "local_shell", item.get("action"))
        elif name == "web_search_call":
            tool = tool or f"web_search-{self._number}"
            yield self._requested(tool, "web_search", item.get("action"))
            if (
                item.get("status") == "completed"
            ):  # it runs at the provider: the line is request and result in one
                yield self._event(
                    "tool_call.completed", {"status": "ok", "tool_name": "web_search"}, tool=tool
                )
        elif name in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
            yield self._output(tool, item.get("output"))
        else:
            yield from self._other(kind, item)

    def _requested(self, tool: str | None, name: str | None, arguments: Any) -> Envelope:
        payload: dict[str, Any] = known({"tool_name": name})
        if name is not None and "__" in name:
            payload.update(call_tool_origin="mcp", server_name=name.removeprefix("mcp__").split("__")[0])
        else:
            payload["call_tool_origin"] = "native"
        put_value(payload, "arguments", _parsed(arguments))
        return self._event("tool_call.requested", payload, tool=tool)

    def _tool_end(self, kind: str, payload: Mapping[str, Any]) -> Iterator[Envelope]:
        """The harness's own word on a tool: kept until the result that the model sees, which comes behind it and says less."""
        tool = identifier(payload.get("call_id"))
        if tool is None:
            self._notes.untold[kind] += 1
            return
        result = mapping(payload.get("result"))
        failed = (
            "Err" in result
            or mapping(result.get("Ok")).get("is_error") is True
            or payload.get("success") is False
            or count(payload.get("exit_code")) not in (None, 0)
        )
        self._ends[tool] = known(
            {"status": "error" if failed else "ok", "duration_ms": _duration(payload.get("duration"))}
        )
        called = mapping(payload.get("invocation"))
        if kind == "event_msg/mcp_tool_call_end":
            seen = {
                "method": "tools/call",
                "direction": "response",
                "server_name": identifier(called.get("server"), 256),
                "tool_name": identifier(called.get("tool"), 256),
            }
            yield self._event("mcp.observed", known(seen), tool=tool)

    def _output(self, tool: str | None, output: Any) -> Envelope:
        said, facts = _result(output)
        payload: dict[str, Any] = {"status": "ok", **facts, **self._ends.pop(tool or "", {})}
        if said is not None:
            payload["bytes_received"] = len(said.encode())
            put_text(payload, "preview", said)
            if payload["status"] == "error":
                put_text(payload, "error_message", said, MESSAGE_LIMIT)
        return self._event("tool_call.completed", payload, tool=tool)

    def _other(self, kind: str, value: Mapping[str, Any]) -> Iterator[Envelope]:
        if kind in UNTOLD:
            self._notes.untold[kind] += 1
            return
        self._notes.unknown[kind] += 1
        payload: dict[str, Any] = {}
        put_value(payload, "record", dict(value))
        yield self._event(cut(f"codex.{clean(kind.split('/')[-1])}", TYPE_BYTES)[0], payload)

    def _event(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        call: str | None = None,
        tool: str | None = None,
        turn: str | None = None,
    ) -> Envelope:
        seq = self._number * EVENTS_A_RECORD + self._ordinal
        self._ordinal += 1
        event: Envelope = {
            "session_id": self._thread,
            "producer": PRODUCER,
            "epoch": OUTPUT_VERSION,
            "stream": self._stream,
            "seq": seq,
            "type": kind,
        }
        if self._at is not None:
            event["occurred_at"] = self._at
        event["kind"] = "import"
        if turn or self._turn is not None:
            event["turn_id"] = turn or self._turn
        if call is not None:
            event["model_call_id"] = call
        if tool is not None:
            event["tool_call_id"] = tool
        event["payload"] = payload
        return event


def _facts(meta: Mapping[str, Any]) -> dict[str, Any]:
    return known(
        {
            "agent": PRODUCER,
            "agent_version": identifier(meta.get("cli_version"), 128),
            "mode": identifier(meta.get("originator"), 128),
            "name": identifier(meta.get("agent_nickname"), 128),
            "cwd": identifier(meta.get("cwd"), 4096),
        }
    )


def _parsed(arguments: Any) -> Any:
    """Arguments are JSON inside a string; a text that is none (a patch) stays a text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    return value if isinstance(value, (dict, list)) else arguments


def _duration(value: Any) -> int | None:
    """ms of a Rust duration {secs, nanos}."""
    duration = mapping(value)
    seconds, nanos = count(duration.get("secs")), count(duration.get("nanos"))
    return seconds * 1000 + (nanos or 0) // 1_000_000 if seconds is not None else None


def _result(output: Any) -> tuple[str | None, dict[str, Any]]:
    """What the model saw, and status and duration where the output says them (a JSON text in old versions, ``Exit code: N`` later)."""
    if isinstance(output, str) and output.startswith("{"):
        try:
            output = orjson.loads(output)
        except orjson.JSONDecodeError:
            return text(output), {}
    if isinstance(output, list):
        return joined(output, ("text", "input_text", "output_text")), {}
    if isinstance(output, dict):
        said = output.get("output", output.get("content"))
        metadata = mapping(output.get("metadata"))
        code = metadata.get("exit_code")
        seconds = metadata.get("duration_seconds")
        failed = (type(code) is int and code != 0) or output.get("success") is False
        facts = known(
            {
                "status": "error" if failed else "ok",
                "duration_ms": whole(seconds * 1000) if isinstance(seconds, (int, float)) else None,
            }
        )
        return text(said) if isinstance(said, str) else orjson.dumps(taken_over(output)).decode(), facts
    said = text(output)
    for line in (said or "").split("\n", HEAD_LINES)[:HEAD_LINES]:
        for prefix in ("Exit code: ", "Process exited with code "):
            if line.startswith(prefix) and line[len(prefix) :].strip().lstrip("-").isdigit():
                return said, {"status": "error" if int(line[len(prefix) :]) != 0 else "ok"}
    return said, {}


def _read(source: Source, notes: Notes) -> Iterator[Envelope]:
    return Telling(notes).more(lambda having: source.records(having=having))


def _follow(_source: Source, notes: Notes) -> Telling:
    return Telling(notes)


FORMAT = Format(
    name=PRODUCER,
    title="Codex CLI",
    files="~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl, after a week .jsonl.zst",
    versions="0.44–0.107 (real files), ≥ 0.151 (described)",
    usage="exact: a running total of the thread; one derived call for each rise before 0.151",
    cost="none",
    latency="none; duration of turns and of MCP calls",
    tools="requests and results by call id; status from exit codes",
    turns="task_started and task_complete; before those, user messages",
    cannot="retries, stream errors, approvals; which call asked for a tool before 0.151; tokens of an aborted call",
    lines=_read,
    follow=_follow,
    recognises=recognises,
)
