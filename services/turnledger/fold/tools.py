"""Owns tool calls (contract 10): which events are one logical tool call, whether it was answered, and the rows of ``tool_calls``.

A tool call is scoped by its turn; outside turns by its trace, else its session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from turnledger.contract.event import Event
from turnledger.fold.fields import choice, finding, integer, label, listed, place_key, text, wrong_type
from turnledger.fold.model import Row
from turnledger.fold.order import order_key

REQUESTED, START, RESULT, DENIED, SUBMITTED, OBSERVED = range(6)

TOOL_TYPES: Final = {
    "tool_call.requested": REQUESTED,
    "tool_call.started": START,
    "tool_call.completed": RESULT,
    "tool_call.denied": DENIED,
    "tool_results.submitted": SUBMITTED,
    "mcp.observed": OBSERVED,
}
"""Event types that ``pair_tools`` reads."""

ORIGINS: Final = frozenset(("native", "mcp", "builtin", "local", "unknown"))
_STATUSES: Final = frozenset(("ok", "error"))
_DENIERS: Final = frozenset(("policy", "guard", "user"))
_DIRECTIONS: Final = frozenset(("request", "response"))
_OWN_TRANSPORT: Final = frozenset(("builtin", "local"))
"""Origins that no MCP server stands behind."""

Placed = tuple[int, Event]
"""(place in the order of what is paired together, event)."""


class ToolCall:
    """One logical tool call: its events by what they are, each list in order."""

    __slots__ = (
        "consumed_by",
        "denials",
        "first",
        "mcp",
        "request_at",
        "requested_by",
        "requests",
        "results",
        "server_name",
        "tool_call_id",
        "tool_name",
    )

    def __init__(self, placed: Placed) -> None:
        self.first = placed
        self.tool_call_id = placed[1].tool_call_id
        self.requests: list[Placed] = []
        """``tool_call.requested`` and ``.started``: a start counts as a request."""
        self.results: list[Placed] = []
        self.denials: list[Placed] = []
        self.mcp: list[Event] = []
        """What was observed of its transport, the request first."""
        self.consumed_by: str | None = None
        self.requested_by: str | None = None
        self.tool_name: str | None = None
        self.server_name: str | None = None

    def take(self, placed: Placed, what: int) -> None:
        """Add an event, in any order."""
        if placed[0] < self.first[0]:
            self.first = placed
        kept = self.requests if what <= START else self.results if what == RESULT else self.denials
        kept.append(placed)

    @property
    def answered(self) -> bool:
        return bool(self.results or self.denials)

    def describe(self, wrong: list[Row]) -> None:
        """Read the fields that other events are matched by. Requests go before results: the consumer of a result is named by a submission."""
        for events in (self.requests, self.results, self.denials):
            for _, event in events:
                payload = event.payload
                if self.tool_name is None and "tool_name" in payload:
                    self.tool_name = text(event, "tool_name", wrong)
                if self.server_name is None and "server_name" in payload:
                    self.server_name = text(event, "server_name", wrong)
                if self.requested_by is None:
                    self.requested_by = event.model_call_id


def pair_tools(events: Sequence[Placed], wrong: list[Row]) -> list[ToolCall]:
    """The tool calls of one scope, in the order of their first events. ``events``: those of ``TOOL_TYPES``, in order."""
    plain = _by_id(events, wrong)
    return plain if plain is not None else _Pairing(_shared(events), wrong).pair(events)


def _shared(events: Sequence[Placed]) -> set[str]:
    """Tool call ids that requests of different model calls name."""
    names: dict[str, str] = {}
    several: set[str] = set()
    for _, event in events:
        name, tool = event.model_call_id, event.tool_call_id
        if name is None or tool is None or TOOL_TYPES[event.type] > START:
            continue
        if names.setdefault(tool, name) != name:
            several.add(tool)
    return several


def _by_id(events: Sequence[Placed], wrong: list[Row]) -> list[ToolCall] | None:
    """The usual case: every event has a ``tool_call_id`` that at most one model call asked for. Else None.

    Same answer as ``_Pairing``.
    """
    calls: dict[str, ToolCall] = {}
    submissions: list[Placed] = []
    for placed in events:
        event = placed[1]
        what = TOOL_TYPES[event.type]
        if what == SUBMITTED:
            submissions.append(placed)
            continue
        name = event.tool_call_id
        if name is None or what == OBSERVED:
            return None
        call = calls.get(name)
        if call is None:
            call = calls[name] = ToolCall(placed)
        if what <= START:
            asked = event.model_call_id
            if asked is not None:
                if call.requested_by is None:
                    call.requested_by = asked
                elif call.requested_by != asked:
                    return None
            call.requests.append(placed)
        elif what == RESULT:
            call.results.append(placed)
        else:
            call.denials.append(placed)
    found = list(calls.values())
    for call in found:
        call.describe(wrong)
    if submissions:
        _consume(submissions, {name: [call] for name, call in calls.items()}, wrong)
    return found


def _consume(submissions: Iterable[Placed], by_id: dict[str, list[ToolCall]], wrong: list[Row]) -> None:
    """Say which model call consumed a result: the first that submits it."""
    for index, event in submissions:
        for name in listed(event, "tool_call_ids", wrong) or ():
            if type(name) is not str:
                wrong_type(event, "tool_call_ids", wrong)
                continue
            calls = by_id.get(name)
            if not calls:
                wrong.append(
                    finding(
                        "response_names_no_call",
                        "warning",
                        event,
                        tool_call_id=name,
                        model_call_id=event.model_call_id,
                    )
                )
                continue
            before = [call for call in calls if call.first[0] < index]
            open_ = [call for call in before if call.consumed_by is None]
            call = (open_ or before or calls)[-1]
            if call.consumed_by is None:
                call.consumed_by = event.model_call_id


class _Pairing:
    """The whole rule: ids that several model calls use, events without ids, MCP evidence."""

    def __init__(self, several: set[str], wrong: list[Row]) -> None:
        self._several = several
        """Tool call ids that requests of different model calls name."""
        self._wrong = wrong
        self._calls: list[ToolCall] = []
        self._by_id: dict[str, list[ToolCall]] = {}
        self._by_name: dict[tuple[str, str | None], ToolCall] = {}
        """By (tool_call_id, model_call_id where several use it, else None)."""
        self._nameless: list[ToolCall] = []

    def pair(self, events: Sequence[Placed]) -> list[ToolCall]:
        answers: list[Placed] = []
        unnamed: list[Placed] = []
        observed: list[Placed] = []
        submissions: list[Placed] = []
        for placed in events:
            event = placed[1]
            what = TOOL_TYPES[event.type]
            if what == SUBMITTED:
                submissions.append(placed)
            elif what == OBSERVED:
                observed.append(placed)
            elif event.tool_call_id is None:
                unnamed.append(placed)
            elif what <= START and not (what == START and self._needs_name(event)):
                self._named(placed).take(placed, what)
            else:
                answers.append(placed)
        for placed in answers:
            self._answer(placed)
        for placed in unnamed:
            self._take_nameless(placed)
        for call in self._calls:
            call.describe(self._wrong)
        self._observe(observed)
        self._calls.sort(key=lambda call: call.first[0])
        for same in self._by_id.values():
            same.sort(key=lambda call: call.first[0])
        _consume(submissions, self._by_id, self._wrong)
        return self._calls

    def _needs_name(self, event: Event) -> bool:
        return event.tool_call_id in self._several and event.model_call_id is None

    def _new(self, placed: Placed) -> ToolCall:
        call = ToolCall(placed)
        self._calls.append(call)
        if call.tool_call_id is not None:
            self._by_id.setdefault(call.tool_call_id, []).append(call)
        return call

    def _named(self, placed: Placed) -> ToolCall:
        event = placed[1]
        assert event.tool_call_id is not None
        key = (event.tool_call_id, event.model_call_id if event.tool_call_id in self._several else None)
        call = self._by_name.get(key)
        if call is None:
            call = self._by_name[key] = self._new(placed)
        return call

    def _answer(self, placed: Placed) -> None:
        """A result, a denial, or a start that does not say which of several requests it belongs to."""
        index, event = placed
        what = TOOL_TYPES[event.type]
        if not self._needs_name(event):
            self._named(placed).take(placed, what)
            return
        assert event.tool_call_id is not None
        before = [
            (request, call)
            for call in self._by_id.get(event.tool_call_id, ())
            for request, _ in call.requests
            if request < index
        ]
        waiting = [one for one in before if not one[1].answered]
        if waiting or before:
            max(waiting or before, key=lambda one: one[0])[1].take(placed, what)
        else:
            self._named(placed).take(placed, what)

    def _take_nameless(self, placed: Placed) -> None:
        """Without a ``tool_call_id``: a request is its own; a start or an answer joins the latest unanswered one before it.

        A start that finds none is its own, and no other start joins it: two tools that only say when they began are two.
        """
        event = placed[1]
        what = TOOL_TYPES[event.type]
        call = None
        if what != REQUESTED:
            call = next(
                (
                    c
                    for c in reversed(self._nameless)
                    if not c.answered and (what != START or _was_requested(c)) and _fits(c, event)
                ),
                None,
            )
        if call is None:
            call = self._new(placed)
            self._nameless.append(call)
        call.take(placed, what)

    def _observe(self, observed: Sequence[Placed]) -> None:
        """Lay transport evidence over the tool calls; only ``tools/call`` is one itself."""
        for placed, answer in self._exchanges(observed):
            index, event = placed
            if event.tool_call_id is not None:
                same = self._by_id.get(event.tool_call_id)
                if same:
                    call = next((c for c in reversed(same) if c.first[0] < index), same[0])
                    call.mcp += [placed[1], *([answer[1]] if answer is not None else ())]
                    continue
            method = text(event, "method", self._wrong) or (
                text(answer[1], "method", self._wrong) if answer is not None else None
            )
            if method != "tools/call":
                continue
            server = text(event, "server_name", self._wrong)
            tool = text(event, "tool_name", self._wrong)
            matches = [
                c
                for c in self._calls
                if c.first[0] < index and not c.mcp and self._is_transport(c, server, tool)
            ]
            if matches and event.tool_call_id is None:
                max(matches, key=lambda c: c.first[0]).mcp += [
                    event,
                    *([answer[1]] if answer is not None else ()),
                ]
                continue
            call = self._new(placed)
            call.tool_name, call.server_name = tool, server
            call.requested_by = event.model_call_id
            if _is_response(event, self._wrong):
                call.results.append(placed)
            else:
                call.requests.append(placed)
            if answer is not None:
                call.results.append(answer)
            call.mcp += [event, *([answer[1]] if answer is not None else ())]
            self._wrong.append(
                finding("mcp_without_tool_call", "info", event, server_name=server, tool_name=tool)
            )

    def _exchanges(self, observed: Sequence[Placed]) -> list[tuple[Placed, Placed | None]]:
        """Requests with their responses; what has no partner stands alone. Those with a ``tool_call_id`` pair by it."""
        waiting: dict[tuple[str | None, ...], int] = {}
        exchanges: list[tuple[Placed, Placed | None]] = []
        for placed in observed:
            event = placed[1]
            request_id = label(event, "request_id", self._wrong)
            server = text(event, "server_name", self._wrong)
            place = (event.producer, str(event.epoch), event.stream)
            key: tuple[str | None, ...]
            if event.tool_call_id is not None:
                key = ("id", event.tool_call_id)
            elif request_id is not None:
                key = (*place, server, request_id)
            else:
                exchanges.append((placed, None))
                continue
            if _is_response(event, self._wrong):
                asked = waiting.pop(key, None)
                if asked is not None:
                    exchanges[asked] = (exchanges[asked][0], placed)
                    continue
            else:
                waiting[key] = len(exchanges)
            exchanges.append((placed, None))
        return exchanges

    def _is_transport(self, call: ToolCall, server: str | None, tool: str | None) -> bool:
        """The observed server and tool are those of a tool call; a prefix of the server in its name is no part of the name."""
        name = call.tool_name
        if name is None or tool is None:
            return False
        known = server if server is not None else call.server_name
        if call.server_name is not None and server is not None and call.server_name != server:
            return False
        if bare_name(name, known) != bare_name(tool, known):
            return False
        origin = origin_of(call, self._wrong)
        return origin == "mcp" or (origin not in _OWN_TRANSPORT and bare_name(name, known) != name)


def bare_name(tool_name: str, server_name: str | None) -> str:
    """A tool's name without its server's prefix: ``<server>__x`` and ``mcp__<server>__x`` are ``x``."""
    if server_name is not None:
        for prefix in (f"{server_name}__", f"mcp__{server_name}__"):
            if tool_name.startswith(prefix) and len(tool_name) > len(prefix):
                return tool_name[len(prefix) :]
    return tool_name


def _was_requested(call: ToolCall) -> bool:
    return any(event.type == "tool_call.requested" for _, event in call.requests)


def _fits(call: ToolCall, event: Event) -> bool:
    """Nothing that both tell differs: tool name, model call."""
    name = event.payload.get("tool_name")
    for _, other in (*call.requests, *call.results):
        theirs = other.payload.get("tool_name")
        if type(name) is str and type(theirs) is str and name != theirs:
            return False
        if (
            None not in (event.model_call_id, other.model_call_id)
            and event.model_call_id != other.model_call_id
        ):
            return False
    return True


def _is_response(event: Event, wrong: list[Row]) -> bool:
    return choice(event, "direction", _DIRECTIONS, wrong) == "response"


def origin_of(call: ToolCall, wrong: list[Row]) -> str:
    """``native`` ``mcp`` ``builtin`` ``local``, or ``unknown`` where no request says."""
    for _, event in call.requests:
        if "call_tool_origin" in event.payload:
            origin = choice(event, "call_tool_origin", ORIGINS, wrong)
            if origin is not None:
                return origin
    return "mcp" if call.requests and call.requests[0][1].type == "mcp.observed" else "unknown"


def pairing_of(call: ToolCall, end: int | None, waiting: bool) -> str:
    """Its state of contract 10. ``end``: the place of its turn's end. ``waiting``: a result may still be expected."""
    if call.denials:
        return "denied"
    if not call.results:
        return "pending" if waiting else "missing_result"
    if not call.requests:
        return "orphan_result"
    return "late_result" if end is not None and call.results[0][0] > end else "paired"


def tool_row(call: ToolCall, turn_key: str | None, kind: str | None, pairing: str, wrong: list[Row]) -> Row:
    """The call's row of ``tool_calls`` (``columns.TOOL_CALLS``). ``kind``: that of its turn; None takes its first event's."""
    server_name = call.server_name
    method = transport = request_id = error = duration = sent = received = denied_by = call_index = None
    requested_at = completed_at = trace_id = None
    origin = "unknown"
    status = "requested"
    inherited = False
    if call.requests:
        requested_at = call.requests[0][1].at
        for _, event in call.requests:
            payload = event.payload
            if requested_at is None:
                requested_at = event.at
            if trace_id is None:
                trace_id = event.trace_id
            if event.provenance == "inherited":
                inherited = True
            if call_index is None and "call_index" in payload:
                call_index = integer(event, "call_index", wrong)
        origin = origin_of(call, wrong)
    if call.results:
        _, event = call.results[-1]
        payload = event.payload
        completed_at = event.at
        if "error_message" in payload:
            error = text(event, "error_message", wrong)
        told = choice(event, "status", _STATUSES, wrong)
        status = told or ("error" if error is not None else "ok")
        if "duration_ms" in payload:
            duration = integer(event, "duration_ms", wrong)
        if "bytes_sent" in payload:
            sent = integer(event, "bytes_sent", wrong)
        if "bytes_received" in payload:
            received = integer(event, "bytes_received", wrong)
        if "method" in payload:
            method = text(event, "method", wrong)
        if "transport" in payload:
            transport = text(event, "transport", wrong)
        if "request_id" in payload:
            request_id = label(event, "request_id", wrong)
        for _, event in call.results:
            if trace_id is None:
                trace_id = event.trace_id
            if event.provenance == "inherited":
                inherited = True
    if call.denials:
        _, event = call.denials[-1]
        status = "denied"
        denied_by = choice(event, "by", _DENIERS, wrong)
        if completed_at is None:
            completed_at = event.at
        for _, event in call.denials:
            if trace_id is None:
                trace_id = event.trace_id
            if event.provenance == "inherited":
                inherited = True
    for event in call.mcp:
        # Transport evidence fills what the tool call's own events leave open; it is no result of its own.
        method = method or text(event, "method", wrong)
        transport = transport or text(event, "transport", wrong)
        request_id = request_id or label(event, "request_id", wrong)
        server_name = server_name or text(event, "server_name", wrong)
        # What the harness stored of a proxied call's result often has neither time nor size: the wire does.
        duration = integer(event, "duration_ms", wrong) if duration is None else duration
        sent = integer(event, "bytes_sent", wrong) if sent is None else sent
        received = integer(event, "bytes_received", wrong) if received is None else received
        inherited = inherited or event.provenance == "inherited"
    first = call.first[1]
    return {
        "tool_key": place_key(first),
        "turn_key": turn_key,
        "call_id": call.tool_call_id,
        "tool_name": call.tool_name,
        "origin": origin,
        "server_name": server_name,
        "status": status,
        "pairing": pairing,
        "requested_by": call.requested_by,
        "consumed_by": call.consumed_by,
        "call_index": call_index,
        "denied_by": denied_by,
        "error_message": error,
        "method": method,
        "transport": transport,
        "request_id": request_id,
        "duration_ms": duration,
        "bytes_sent": sent,
        "bytes_received": received,
        "requested_at": requested_at,
        "completed_at": completed_at,
        "trace_id": trace_id,
        "kind": kind or first.kind,
        "inherited_event": inherited,
        "order_key": order_key(first),
    }
