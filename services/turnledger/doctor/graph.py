"""The identity graph of a session: session → trace → turn → model call → tool call → events. Pure: rows in, one nested object out.

A session without any trace has one trace, null. What belongs to no turn stands in a turn whose key is null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from turnledger.contract.event import Event
from turnledger.doctor.conversation import Recent, every
from turnledger.doctor.timeline import as_row

Row = dict[str, Any]

NOT_IN_A_NODE = ("record",)
"""Columns of ``turnledger.turns`` that a node leaves out: the record stands beside the graph."""


@dataclass(frozen=True)
class Chosen:
    """Which part of a graph is asked for; everything where nothing is named."""

    turn: str | None = None
    """A turn's key, id or index."""
    trace: str | None = None
    call: str | None = None
    """An id of a model call (its own, the provider's, the ledger's key) or of a tool call."""
    event: str | None = None
    """An event's id, its receipt key, or its position ``producer/epoch/stream/seq``."""

    def __bool__(self) -> bool:
        return any((self.turn, self.trace, self.call, self.event))

    def __str__(self) -> str:
        named = (("turn", self.turn), ("trace", self.trace), ("call", self.call), ("event", self.event))
        return ", ".join(f"{what} {value!r}" for what, value in named if value is not None)


def graph(
    turns: Sequence[Row],
    calls: Iterable[Row],
    tools: Iterable[Row],
    events: Iterable[tuple[Event, str | None]] | None = None,
) -> list[Row]:
    """Traces: [{trace_id, turns: [{turn_key, …, model_calls: [{…, tool_calls: [{…, events}], events}], tool_calls, events}]}].

    ``turns`` in the order of contract 7, the others in that of contract 5; ``events`` with their turn's key. ``events`` of a node are null
    where none were given. A turn with work in several traces stands in each, with that part of its work.
    """
    by_key = {turn["turn_key"]: _Turn(turn) for turn in turns}
    outside = _Turn({"turn_key": None})
    given = events is not None

    def of(key: str | None) -> _Turn:
        return by_key.get(key, outside) if key is not None else outside

    for call in calls:
        of(call["turn_key"]).add_call({**call, "tool_calls": [], "events": [] if given else None})
    for tool in tools:
        of(tool["turn_key"]).add_tool({**tool, "events": [] if given else None})
    names = Recent()
    for number, (event, key) in enumerate(events or ()):
        of(key).add_event(as_row(number, every(event, names), payload=True))
    traces: dict[str | None, Row] = {}
    for turn in (*by_key.values(), outside):
        for trace_id, node in turn.nodes(given):
            traces.setdefault(trace_id, {"trace_id": trace_id, "turns": []})["turns"].append(node)
    # Work without a trace is told last.
    return sorted(traces.values(), key=lambda trace: trace["trace_id"] is None)


class _Turn:
    """One turn while its parts are put together."""

    def __init__(self, row: Row) -> None:
        self.row = {name: value for name, value in row.items() if name not in NOT_IN_A_NODE}
        self.calls: list[Row] = []
        self.tools: list[Row] = []
        self.events: list[Row] = []
        self._calls_by_id: defaultdict[str | None, list[Row]] = defaultdict(list)
        self._calls_by_message: defaultdict[str | None, list[Row]] = defaultdict(list)
        self._tools_by_id: defaultdict[str | None, list[Row]] = defaultdict(list)

    def add_call(self, call: Row) -> None:
        self.calls.append(call)
        self._calls_by_id[call["model_call_id"]].append(call)
        self._calls_by_message[call["message_id"]].append(call)

    def add_tool(self, tool: Row) -> None:
        by = tool["requested_by"]
        call = None if by is None else next(iter(self._calls_by_id.get(by, ())), None)
        (self.tools if call is None else call["tool_calls"]).append(tool)
        self._tools_by_id[tool["call_id"]].append(tool)

    def add_event(self, event: Row) -> None:
        node = self._tool_of(event) or self._call_of(event)
        (self.events if node is None else node["events"]).append(event)

    def _tool_of(self, event: Row) -> Row | None:
        known = event["tool_call_id"]
        if known is None:
            return None
        found = self._tools_by_id.get(known, [])
        # A provider that reuses ids: two requests that name different calls are two tool calls (contract 10).
        own = [tool for tool in found if tool["requested_by"] == event["model_call_id"]]
        return next(iter(own or found), None)

    def _call_of(self, event: Row) -> Row | None:
        known, message = event["model_call_id"], event["payload"].get("message_id")
        found = self._calls_by_id.get(known, []) if known is not None else []
        said = self._calls_by_message.get(message, []) if isinstance(message, str) else []
        both = [call for call in found if call in said]
        return next(iter(both or found or said), None)

    def _all_tools(self) -> Iterator[Row]:
        for call in self.calls:
            yield from call["tool_calls"]
        yield from self.tools

    def nodes(self, with_events: bool) -> Iterator[tuple[str | None, Row]]:
        """(trace_id, this turn's part of it). A trace that is the only one holds what names none."""
        work = (*self.calls, *self._all_tools(), *self.events)
        seen = list(dict.fromkeys(one["trace_id"] for one in work if one["trace_id"] is not None))
        default = seen[0] if len(seen) == 1 else None
        named = [*seen, *([] if default is not None else [None])]
        for trace_id in named:
            part = {
                "model_calls": [one for one in self.calls if (one["trace_id"] or default) == trace_id],
                "tool_calls": [one for one in self.tools if (one["trace_id"] or default) == trace_id],
                "events": [one for one in self.events if (one["trace_id"] or default) == trace_id],
            }
            if not any(part.values()) and (trace_id is not None or seen or self.row["turn_key"] is None):
                continue
            if not with_events:
                part["events"] = None  # type: ignore[assignment]  # not asked for, which is not none
            first = trace_id == named[0]
            yield trace_id, {**self.row, "continued": not first, **part}


# --- a part of it -----------------------------------------------------------------------------------------------------------------


def choose(traces: Sequence[Row], chosen: Chosen) -> list[Row]:
    """The parts that are named, with what stands above and below them. All of the named things must hold. Empty where nothing does."""
    found = list(traces)
    if chosen.trace is not None:
        found = [trace for trace in found if trace["trace_id"] == chosen.trace]
    if chosen.turn is not None:
        found = _turns(found, lambda turn: turn if is_turn(turn, chosen.turn or "") else None)
    if chosen.call is not None:
        found = _turns(found, lambda turn: _calls(turn, chosen.call or ""))
    if chosen.event is not None:
        found = _turns(found, lambda turn: _events(turn, chosen.event or ""))
    return found


def is_turn(turn: Row, name: str) -> bool:
    """Whether a name is this turn's key, id or index."""
    return turn["turn_key"] is not None and name in (
        turn["turn_key"],
        turn.get("turn_id"),
        None if turn.get("turn_index") is None else str(turn["turn_index"]),
    )


def is_event(event: Row, name: str) -> bool:
    """Whether a name is this event's id, receipt key or position."""
    if event["seq"] is None:
        return name in (event["event_id"], event["receipt_key"])
    return name in (event["event_id"], place(event))


def place(event: Row) -> str:
    """``producer/epoch/stream/seq``, or the receipt key."""
    if event["seq"] is None:
        return str(event["receipt_key"])
    return f"{event['producer']}/{event['epoch']}/{event['stream']}/{event['seq']}"


def _turns(traces: Sequence[Row], part: Callable[[Row], Row | None]) -> list[Row]:
    kept = []
    for trace in traces:
        turns = [found for turn in trace["turns"] if (found := part(turn)) is not None]
        if turns:
            kept.append({**trace, "turns": turns})
    return kept


def _calls(turn: Row, name: str) -> Row | None:
    calls = []
    for call in turn["model_calls"]:
        if name in (call["model_call_id"], call["message_id"], call["request_id"], call["call_key"]):
            calls.append(call)
        elif tools := [tool for tool in call["tool_calls"] if _is_tool(tool, name)]:
            calls.append({**call, "tool_calls": tools, "events": []})
    tools = [tool for tool in turn["tool_calls"] if _is_tool(tool, name)]
    return {**turn, "model_calls": calls, "tool_calls": tools, "events": []} if calls or tools else None


def _is_tool(tool: Row, name: str) -> bool:
    return name in (tool["call_id"], tool["tool_key"])


def _events(turn: Row, name: str) -> Row | None:
    def of(node: Row) -> list[Row]:
        return [event for event in node["events"] if is_event(event, name)]

    calls = []
    for call in turn["model_calls"]:
        tools = [{**tool, "events": found} for tool in call["tool_calls"] if (found := of(tool))]
        if tools or of(call):
            calls.append({**call, "tool_calls": tools, "events": of(call)})
    tools = [{**tool, "events": found} for tool in turn["tool_calls"] if (found := of(tool))]
    if calls or tools or of(turn):
        return {**turn, "model_calls": calls, "tool_calls": tools, "events": of(turn)}
    return None


def nodes(traces: Iterable[Row]) -> Iterator[Row]:
    """Everything in a graph that holds events: turns, model calls, tool calls."""
    for trace in traces:
        for turn in trace["turns"]:
            yield turn
            for call in turn["model_calls"]:
                yield call
                yield from call["tool_calls"]
            yield from turn["tool_calls"]


def all_events(traces: Iterable[Row]) -> Iterator[Row]:
    """Every event of a graph, node by node."""
    for node in nodes(traces):
        yield from node["events"] or ()
