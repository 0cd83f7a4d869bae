"""The identity graph as a tree of lines: times, tokens, cost, grade. What does not fit a line goes on in the next, under its own branch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnledger.contract.shapes import hide
from turnledger.doctor.conversation import CODES
from turnledger.doctor.graph import place
from turnledger.doctor.line import Page, begin, fit, one_line
from turnledger.doctor.tables import UNKNOWN, count, dollars

Row = dict[str, Any]

SHOWN = 200
"""Branches of one kind under one node: more are counted."""
PREVIEW = 2000
"""Characters of a body that are shown."""
BETWEEN = " · "

BAD = frozenset(("failed", "error", "crashed", "lost", "disputed", "gaps", "missing_result", "orphan_result"))
DOUBTFUL = frozenset(
    ("partial", "abandoned", "interrupted", "aborted", "denied", "late_result", "pending", "open")
)
GOOD = frozenset(("complete", "completed", "ok", "paired"))


@dataclass(slots=True)
class Node:
    """One branch: what it is, figures, what hangs under it."""

    kind: str
    name: str
    figures: list[str] = field(default_factory=list)
    under: list[Node] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    """Lines that are shown whole below it, already safe."""


def write_tree(page: Page, root: Node) -> None:
    """A tree with its root at the margin."""
    _write(page, root, "", "", "")


def _write(page: Page, node: Node, before: str, branch: str, go_on: str) -> None:
    stem = before + go_on + ("│  " if node.under else "   ")
    room = page.columns - len(before) - len(branch)
    head = f"{node.kind} {begin(node.name, max(room - len(node.kind) - 1, 8))}" if node.name else node.kind
    lines: list[str] = []
    line = head
    for figure in node.figures:
        figure = fit(figure, max(page.columns - len(stem) - 2, 8))
        space = room if not lines else page.columns - len(stem) - 2
        joined = f"{line}{BETWEEN if line is not head else '  '}{figure}"
        if len(fit(joined, space)) == len(joined) and fit(joined, space) == joined:
            line = joined
        else:
            lines.append(line)
            line = figure
    lines.append(line)
    for number, text in enumerate(lines):
        guide = page.paint(before + branch if number == 0 else stem + "  ", "dim")
        shown = _painted(page, text, node.kind if number == 0 else "")
        page.write(guide + shown)
    for text in node.text:
        for piece in _folded(text, max(page.columns - len(stem) - 2, 8)):
            page.write(page.paint(stem + "  ", "dim") + piece)
    for at, child in enumerate(node.under):
        last = at == len(node.under) - 1
        _write(page, child, before + go_on, "└─ " if last else "├─ ", "   " if last else "│  ")


def _folded(text: str, columns: int) -> Iterator[str]:
    while text:
        piece = fit(text, columns)
        if piece == text:
            yield text
            return
        kept = len(piece) - 1 if piece.endswith("…") else len(piece)
        kept = max(kept, 1)
        yield text[:kept]
        text = text[kept:]


def _painted(page: Page, text: str, kind: str) -> str:
    """A line with its kind bold and words that judge in their colours."""
    if not page.colours:
        return text
    pieces = []
    for at, piece in enumerate(text.split(BETWEEN)):
        if at == 0 and kind:
            # The head: its name may be any word, its first figure stands two spaces behind it.
            head, gap, figure = piece.partition("  ")
            pieces.append(page.paint(kind, "bold") + head[len(kind) :] + gap + _judged(page, figure))
        else:
            pieces.append(_judged(page, piece))
    return page.paint(BETWEEN, "dim").join(pieces)


def _judged(page: Page, figure: str) -> str:
    word = figure.rpartition(" ")[2]
    style = "red" if word in BAD else "yellow" if word in DOUBTFUL else "green" if word in GOOD else None
    return page.paint(figure, style) if style else figure


# --- what stands on a branch ------------------------------------------------------------------------------------------------------


def session_node(
    name: str,
    row: Row | None,
    traces: Sequence[Row],
    *,
    latest: Collection[str] | None = None,
    whole: bool = False,
) -> Node:
    """The whole tree. ``row`` is the session's of ``turnledger.sessions``; of its turns those with the keys in ``latest`` are shown, wherever
    they worked, and the others counted; ``whole`` shows events with everything that they hold."""
    root = Node("session", one_line(name))
    if row is None:
        root.figures.append("its sums are not there yet; the rollup worker sets them")
    else:
        root.figures += [
            one_line(row["status"]),
            f"{_second(row['created_at'])} → {_second(row['last_activity_at'])}",
            _tokens(row),
            _cost(row),
            one_line(row["grade"]),
        ]
    with_traces = any(trace["trace_id"] is not None for trace in traces)
    shown: set[str | None] = set()
    hidden: set[str] = set()
    for trace in traces:
        nodes = []
        for turn in trace["turns"]:
            key = turn["turn_key"]
            if latest is not None and key is not None and key not in latest:
                hidden.add(key)
                continue
            # A part of the tree may lack the trace in which its turn began.
            nodes.append(turn_node(turn, whole, goes_on=key in shown))
            shown.add(key)
        if not nodes:
            continue
        if with_traces:
            name = UNKNOWN if trace["trace_id"] is None else one_line(trace["trace_id"])
            root.under.append(Node("trace", name, under=nodes))
        else:
            root.under += nodes
    if hidden:
        before = f"{len(hidden):,} turn{'s' if len(hidden) > 1 else ''} before"
        root.under.insert(0, Node("…", f"{before}; -n shows more"))
    return root


def turn_node(turn: Row, whole: bool = False, *, goes_on: bool = False) -> Node:
    """A turn, or the work outside every turn. ``goes_on``: its figures were shown in another trace."""
    if turn["turn_key"] is None:
        node = Node("outside turns", "")
    elif goes_on:
        node = Node("turn", one_line(turn["turn_key"]), ["goes on; its figures stand above"])
    else:
        node = Node("turn", one_line(turn["turn_key"]), _turn_figures(turn))
    node.under += _limited([call_node(call, whole) for call in turn["model_calls"]], "calls")
    node.under += _limited([tool_node(tool, whole) for tool in turn["tool_calls"]], "tools")
    node.under += _limited([event_node(event, whole) for event in turn["events"] or ()], "events")
    return node


def _turn_figures(turn: Row) -> list[str]:
    figures = [
        one_line(turn["status"]),
        _clock(turn["started_at"]),
        _duration(turn["duration_ms"]),
        _tokens(turn),
        _cost(turn),
        one_line(turn["grade"]),
        None if turn["stop_why"] is None else f"stop: {one_line(turn['stop_why'])}",
        None
        if turn["event_count"] is None
        else f"{count(turn['event_count'])} event{'' if turn['event_count'] == 1 else 's'}",
    ]
    return [figure for figure in figures if figure is not None]


def call_node(call: Row, whole: bool = False) -> Node:
    """A model call and the tools that it asked for."""
    name = call["model_call_id"] or call["message_id"] or call["call_key"]
    failed = " ".join(
        one_line(call[name]) for name in ("status_code", "error_class") if call[name] is not None
    )
    figures = [
        None if call["model"] is None else one_line(call["model"]),
        one_line(call["status"]) if call["status"] != "failed" else f"{failed} failed".strip(),
        _clock(call["completed_at"] or call["started_at"]),
        _duration(call["latency_ms"]),
        _tokens(call) if call["status"] != "failed" or call["total_input_tokens"] is not None else None,
        "no price"
        if call["unpriced"]
        else None
        if call["cost_micro_usd"] is None
        else dollars(call["cost_micro_usd"]),
        None
        if call["fidelity"] in (None, "exact") or call["status"] == "failed"
        else one_line(call["fidelity"]),
        f"{call['retries']} failed before it" if call["retries"] else None,
        None if call["stop_reason"] is None else one_line(call["stop_reason"]),
        f"inherited from {one_line(call['owner_session_id'])}" if call["inherited"] else None,
    ]
    node = Node("call", one_line(name), [figure for figure in figures if figure is not None])
    node.under += _limited([tool_node(tool, whole) for tool in call["tool_calls"]], "tools")
    node.under += _limited([event_node(event, whole) for event in call["events"] or ()], "events")
    return node


def tool_node(tool: Row, whole: bool = False) -> Node:
    """A tool call."""
    server = "" if tool["server_name"] is None else f" of {one_line(tool['server_name'])}"
    figures = [
        one_line(tool["status"]),
        None if tool["pairing"] in (None, "paired", tool["status"]) else one_line(tool["pairing"]),
        None if tool["denied_by"] is None else f"by {one_line(tool['denied_by'])}",
        _clock(tool["completed_at"] or tool["requested_at"]),
        _duration(tool["duration_ms"]),
        None if tool["call_id"] is None else one_line(tool["call_id"]),
        None if tool["error_message"] is None else begin(tool["error_message"], 200),
    ]
    node = Node(
        "tool", f"{one_line(tool['tool_name'])}{server}", [figure for figure in figures if figure is not None]
    )
    node.under += _limited([event_node(event, whole) for event in tool["events"] or ()], "events")
    return node


def event_node(event: Row, whole: bool = False) -> Node:
    """An event in a line; ``whole`` with everything that it holds."""
    clock = _clock(event["at"])
    figures = [*([] if clock is None else [clock]), begin(place(event), 100)]
    if event["text"] is not None and not whole:
        named = f"{one_line(event['tool_name'])} " if event["code"] in CODES and event["tool_name"] else ""
        figures.append(named + begin(event["text"], 200))
    node = Node("event", one_line(event["type"]), figures)
    for body in event.get("bodies", ()):
        node.under.append(body_node(body))
    if whole:
        for name in (
            "event_id",
            "turn_id",
            "turn_index",
            "trace_id",
            "model_call_id",
            "tool_call_id",
            "provenance",
        ):
            if event[name] is not None:
                node.text.append(f"{name:<14} {one_line(event[name])}")
        node.text.append("payload")
        shown = json.dumps(event["payload"], ensure_ascii=False, indent=2)
        node.text += [f"  {_spaced(line)}" for line in shown.split("\n")]
    return node


def body_node(body: Row) -> Node:
    """A body: what is known of it and its beginning, secrets by shape hidden."""
    checked = {True: "its hash holds", False: "its hash does NOT hold", None: None}[body["verified"]]
    size = f"{count(body['stored_bytes'])} of {count(body['original_bytes'])} bytes"
    figures: list[str | None] = [
        one_line(body["source"]),
        one_line(body["content_type"]),
        size,
        "truncated" if body["truncated"] else None,
        None if body["complete"] else f"{body['parts_present']} of {body['parts']} parts",
        checked,
    ]
    node = Node("body", one_line(body["direction"]), [figure for figure in figures if figure is not None])
    data = body["data"]
    if data is not None:
        raw = bytes(data)
        text = hide(raw[: 4 * PREVIEW].decode("utf-8", "backslashreplace"))
        node.text += [_spaced(line) for line in text[:PREVIEW].split("\n")]
        if len(text) > PREVIEW or len(raw) > 4 * PREVIEW:
            node.text.append("… --json has all of it")
    return node


def _spaced(line: str) -> str:
    """A line whose indentation stays and whose control characters do not."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line.rstrip("\r")
    )


def _limited(nodes: list[Node], what: str) -> list[Node]:
    if len(nodes) <= SHOWN:
        return nodes
    return [*nodes[:SHOWN], Node("…", f"and {len(nodes) - SHOWN:,} more {what}; --json has all")]


def _tokens(row: Row) -> str:
    if row["total_input_tokens"] is None and row["output_tokens"] is None:
        return "tokens –"
    cached = f" ({count(row['cache_read_tokens'])} cached)" if row["cache_read_tokens"] else ""
    return f"{count(row['total_input_tokens'])} in{cached} {count(row['output_tokens'])} out"


def _cost(row: Row) -> str:
    return f"cost {dollars(row['cost_micro_usd'])}" + (
        f" +{row['unpriced_calls']}?" if row["unpriced_calls"] else ""
    )


def _duration(ms: int | None) -> str | None:
    if ms is None:
        return None
    if ms < 1000:
        return f"{ms} ms"
    minutes, rest = divmod(ms, 60_000)
    return f"{minutes} min {rest // 1000} s" if minutes else f"{rest / 1000:.1f} s"


def _clock(instant: str | None) -> str | None:
    """The time of day: the day stands at the session."""
    return None if instant is None else instant.partition("T")[2].partition(".")[0]


def _second(instant: str | None) -> str:
    return UNKNOWN if instant is None else instant.partition(".")[0].replace("T", " ") + "Z"
