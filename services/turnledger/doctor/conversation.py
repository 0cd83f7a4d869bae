"""What was said in a session, as lines: the user, tools, their results, the assistant. Pure; holds a bounded part of what it has read.

Harnesses tell one thing in several events (a turn's start repeats the user's message, a call's end the assistant's). The conversation says it
once; ``every`` leaves nothing out and joins nothing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from turnledger.contract.event import Event
from turnledger.fold.turns import is_user_message

USER, TOOL, RES, ASST = "USER", "TOOL", "RES", "ASST"
CODES: Final = frozenset((USER, TOOL, RES, ASST))

TYPES: Final = (
    "turn.started",
    "message.recorded",
    "model_call.completed",
    "tool_call.requested",
    "tool_call.completed",
    "tool_call.denied",
    "answer.finalized",
)
"""Types that a conversation is made of."""

REMEMBERED = 4096
"""Tool calls whose name, and model calls whose words, are remembered: more are never open at a time."""

LEAST_CUT = 32
"""Characters that a text has at least where it may be the cut copy of another: "y" is no cut "yes"."""

DETAIL: Final[dict[str, tuple[str, ...]]] = {
    "net.requested": ("method", "domain", "path", "decision", "status_code"),
    "dns.queried": ("qname", "qtype", "rcode", "decision"),
    "fs.changed": ("action", "path", "size"),
    "process.started": ("command",),
    "process.exited": ("exec_id", "exit_code", "duration_ms"),
    "process.audited": ("exe", "argv"),
    "turn.started": ("input_preview",),
    "turn.completed": ("status", "error", "duration_ms"),
    "model_call.started": ("provider", "model"),
    "model_call.completed": ("model", "stop_reason", "status_code", "text"),
    "model_call.failed": ("error_class", "status_code", "message"),
    "model_call.retried": ("attempt", "error_class", "delay_ms"),
    "tool_call.started": ("tool_name",),
    "guard.evaluated": ("guard", "outcome", "reason"),
    "limit.reached": ("limit", "value", "threshold"),
    "session.started": ("agent", "model", "name"),
    "session.ended": ("status", "exit_code"),
    "artifact.checked": ("path", "expected", "present"),
    "credential.used": ("source", "provider", "outcome", "reference"),
    "security.rule_matched": ("rule_id", "rule_action", "detection_level"),
    "security.decided": ("stage", "requested", "effective"),
    "mcp.observed": ("direction", "method", "server_name", "tool_name"),
    "body.recorded": ("source", "direction", "content_type", "original_bytes"),
    "counter.reported": ("name", "value", "labels"),
    "stream.declared": ("density",),
    "stream.lost": ("from_seq", "to_seq", "reason"),
    "transition.decided": ("state", "verdict"),
    "slot.written": ("slot", "old", "new"),
}
"""The fields of a payload that tell most, in the order in which they are read aloud. Of other types all scalars."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story."""

    code: str
    """``USER`` ``TOOL`` ``RES`` ``ASST``, or the type of the event."""
    event: Event
    text: str | None = None
    """What was said, asked, answered. As it came: not safe for a terminal yet."""
    name: str | None = None
    """Of a tool."""
    tool_calls: int | None = None
    """Of ``ASST``: how many tools it asked for. Null is unknown."""


class Recent(OrderedDict[Any, Any]):
    """The latest few of a growing mapping."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


@dataclass(slots=True)
class Conversation:
    """Reads events in order and says each thing once. ``end`` says what was still held back."""

    _names: Recent = field(default_factory=Recent)
    _said: Recent = field(default_factory=Recent)
    _waiting: Line | None = None
    _last: Line | None = None

    def read(self, event: Event, tool_calls: int | None = None) -> Iterator[Line]:
        """The lines that are certain with this event. ``tool_calls``: how many tools its model call asked for, where that is known."""
        kind = event.type
        if kind == "turn.started":
            yield from self._opened(event)
        elif kind == "message.recorded":
            role = event.payload.get("role")
            if is_user_message(event):
                yield from self._user(event)
            elif role == "assistant":
                told = told_tool_calls(event)
                yield from self._assistant(event, words(event), tool_calls if told is None else told)
        elif kind == "model_call.completed":
            yield from self._completed(event, tool_calls)
        elif kind == "answer.finalized":
            yield from self._assistant(event, answer(event), tool_calls)
        elif kind == "tool_call.requested":
            yield from self._now(tool_line(event, self._names))
        elif kind in ("tool_call.completed", "tool_call.denied"):
            yield from self._now(result_line(event, self._names))

    def end(self) -> Iterator[Line]:
        """What was held back."""
        if self._waiting is not None:
            self._last, self._waiting = self._waiting, None
            yield self._last

    def _now(self, line: Line) -> Iterator[Line]:
        yield from self.end()
        self._last = line
        yield line

    def _opened(self, event: Event) -> Iterator[Line]:
        self._said.clear()  # some harnesses count their calls from 1 in each turn
        preview = text(event.payload.get("input_preview"))
        if preview is None or event.provenance == "derived":
            return
        last = self._waiting or self._last
        if last is not None and last.code == USER and _one_begins_the_other(last.text, preview):
            return
        yield from self.end()
        self._waiting = Line(USER, event, preview)

    def _user(self, event: Event) -> Iterator[Line]:
        said = words(event)
        waiting = self._waiting
        if (
            waiting is not None
            and waiting.code == USER
            and waiting.event.type == "turn.started"
            and (said is None or _one_begins_the_other(waiting.text, said))
        ):
            self._waiting = None
            yield from self._now(Line(USER, event, said if said is not None else waiting.text))
            return
        yield from self._now(Line(USER, event, said))

    def _completed(self, event: Event, tool_calls: int | None) -> Iterator[Line]:
        said = text(event.payload.get("text"))
        if said is not None:
            yield from self._assistant(event, said, tool_calls)
        elif event.provenance != "derived" and event.model_call_id not in self._said:
            # Its words may stand in the message that follows.
            yield from self.end()
            self._remember(event, "")
            self._waiting = Line(ASST, event, None, tool_calls=tool_calls)

    def _assistant(self, event: Event, said: str | None, tool_calls: int | None) -> Iterator[Line]:
        waiting = self._waiting
        if waiting is not None and waiting.code == ASST and _of_one_call(waiting.event, event):
            self._waiting = None
            tool_calls = waiting.tool_calls if tool_calls is None else tool_calls
        elif said is None or self._is_said(event, said):
            if said is None and event.model_call_id not in self._said:
                self._remember(event, "")
                yield from self._now(Line(ASST, event, None, tool_calls=tool_calls))
            return
        self._remember(event, said or "")
        yield from self._now(Line(ASST, event, said, tool_calls=tool_calls))

    def _is_said(self, event: Event, said: str) -> bool:
        known = self._said.get(event.model_call_id) if event.model_call_id is not None else None
        if known and _one_begins_the_other(known, said):
            return True
        last = self._last
        if event.type != "answer.finalized" or last is None or last.code != ASST:
            return False
        return _one_begins_the_other(last.text, said)

    def _remember(self, event: Event, said: str) -> None:
        if event.model_call_id is not None:
            self._said[event.model_call_id] = said[:1000]


def every(event: Event, names: Recent, tool_calls: int | None = None) -> Line:
    """The line of any event by itself. ``names`` is kept by the caller from line to line."""
    kind = event.type
    if kind == "message.recorded":
        role = event.payload.get("role")
        if is_user_message(event):
            return Line(USER, event, words(event))
        if role == "assistant":
            told = told_tool_calls(event)
            return Line(ASST, event, words(event), tool_calls=tool_calls if told is None else told)
        return Line(kind, event, " ".join(filter(None, (text(role), words(event)))))
    if kind == "tool_call.requested":
        return tool_line(event, names)
    if kind in ("tool_call.completed", "tool_call.denied"):
        return result_line(event, names)
    return Line(kind, event, detail(event))


def tool_line(event: Event, names: Recent) -> Line:
    """What a tool was asked."""
    name = text(event.payload.get("tool_name"))
    if event.tool_call_id is not None and name is not None:
        names[_tool(event)] = name
    return Line(TOOL, event, _value(event.payload.get("arguments")), name=name)


def result_line(event: Event, names: Recent) -> Line:
    """What a tool answered, or who denied it."""
    payload = event.payload
    name = (
        text(payload.get("tool_name"))
        or names.get(_tool(event))
        or names.get((None, None, event.tool_call_id))
    )
    if event.type == "tool_call.denied":
        by = text(payload.get("by")) or "somebody"
        reason = text(payload.get("reason")) or text(payload.get("rule"))
        return Line(RES, event, f"denied by {by}" + (f": {reason}" if reason else ""), name=name)
    said = text(payload.get("preview"))
    if payload.get("status") == "error":
        said = f"error: {text(payload.get('error_message')) or said or 'without a message'}"
    elif said is None:
        said = text(payload.get("status"))
    return Line(RES, event, said, name=name)


def words(event: Event) -> str | None:
    """The text of a message: its own, else that of its content."""
    payload = event.payload
    said = text(payload.get("text"))
    if said is not None:
        return said
    content = payload.get("content")
    if isinstance(content, list):
        parts = [text(one.get("text")) if isinstance(one, dict) else text(one) for one in content]
        return "\n".join(part for part in parts if part) or None
    return text(content)


def answer(event: Event) -> str | None:
    """The answer of an ``answer.finalized``."""
    said = text(event.payload.get("text"))
    return said if said is not None else _value(event.payload.get("value"))


def told_tool_calls(event: Event) -> int | None:
    """How many tools a message says that it asks for; null where it does not say."""
    told = event.payload.get("tool_calls")
    if isinstance(told, list):
        return len(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def detail(event: Event) -> str | None:
    """What the payload of an event tells in one line."""
    payload = event.payload
    names = DETAIL.get(event.type)
    if names is None:
        values = [
            f"{name}={value}" for name, value in payload.items() if isinstance(value, str | int | float)
        ]
    else:
        values = [shown for name in names if (shown := _value(payload.get(name))) is not None]
    return " ".join(values) or None


def text(value: Any) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value.strip() else None


def _value(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _tool(event: Event) -> tuple[str | None, int | None, str | None]:
    return event.turn_id, event.turn_index, event.tool_call_id


def _of_one_call(one: Event, other: Event) -> bool:
    return one.model_call_id is not None and one.model_call_id == other.model_call_id


def _one_begins_the_other(one: str | None, other: str | None) -> bool:
    """Whether two texts are one, a cut copy of which may be the shorter."""
    first, second = (" ".join((value or "")[:2000].split()).rstrip("…. ") for value in (one, other))
    if first == second:
        return bool(first)
    short, long = sorted((first, second), key=len)
    return len(short) >= LEAST_CUT and long.startswith(short)
