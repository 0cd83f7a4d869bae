"""Generated sessions for the fold's properties, and a projection that is written as the worker writes it."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from turnledger.contract.event import Event
from turnledger.fold.items import item_key
from turnledger.fold.model import Row, SessionFold, TurnFold
from turnledger.fold.state import NeedsHistory, SessionChanges, SessionState, point_key

STREAMS = (
    ("harness", 0, "ledger"),
    ("harness", 0, "bus"),
    ("host", 0, "ledger"),
    ("harness", 1, "ledger"),
)
NOON = 1_700_000_000_000_000

Step = tuple[int, str, int, int, int, int]
"""(stream, what, which id, which link, µs later or −1 for no time, numbers left out)."""


def _payload(what: str, number: int, which: int) -> tuple[str, dict[str, Any]]:
    table: dict[str, tuple[str, dict[str, Any]]] = {
        "start": ("turn.started", {"input_preview": f"go {number}"}),
        "thread": ("turn.started", {"provider_thread": f"t{which}"}),
        "end": ("turn.completed", {"status": "completed"}),
        "fail": ("turn.completed", {"status": "failed", "error": "no"}),
        "user": ("message.recorded", {"role": "user", "text": f"hello {number}"}),
        "said": ("message.recorded", {"role": "assistant", "text": f"well {number}"}),
        "call": ("model_call.started", {"provider": "openai", "model": "m"}),
        "answer": (
            "model_call.completed",
            {
                "provider": "openai",
                "model": "m",
                "usage": {"input": 10 + number, "output": 3, "cache_read": 0},
            },
        ),
        "message": (
            "model_call.completed",
            {
                "provider": "anthropic",
                "model": "c",
                "message_id": f"m{which}",
                "usage": {"input": number, "output": 7, "cache_read": 1},
            },
        ),
        "failed": ("model_call.failed", {"provider": "openai", "error_class": "rate_limit"}),
        "total": (
            "usage.reported",
            {
                "provider": "openai",
                "counter_kind": "cumulative",
                "usage": {"input": 5 * number, "output": number, "cache_read": 0},
                "start_known": True,
            },
        ),
        "rollup": ("usage.reported", {"provider": "openai", "counter_kind": "rollup", "usage": {"input": 7}}),
        "tool": ("tool_call.requested", {"tool_name": "bash"}),
        "result": ("tool_call.completed", {"status": "ok", "tool_name": "bash"}),
        "net": ("net.requested", {"domain": "a.example", "port": 443, "decision": "allowed"}),
        "provider": ("net.requested", {"domain": "api.openai.com", "port": 443, "decision": "allowed"}),
        "again": (
            "message.recorded",
            {"role": "user", "text": f"hello {which}"},
        ),  # the same words come again
        "echo": ("message.recorded", {"role": "assistant", "content": [f"well {which}"]}),
        "thought": ("model_call.completed", {"provider": "openai", "thinking": "hm", "text": f"so {which}"}),
        "ask": ("tool_call.requested", {"tool_name": "grep", "arguments": {"pattern": which}}),
        "told": ("tool_call.completed", {"status": "ok", "preview": f"out {which}"}),
        "submit": (
            "tool_results.submitted",
            {"tool_call_ids": ["tool0", 7, "tool1", "tool0"][which:], "context_tokens": number},
        ),
        "body": (
            "body.recorded",
            {
                "for_event_id": f"e{which}",
                "source": "net",
                "direction": "response",
                "original_bytes": 6,
                "truncated": False,
                "sha256": "0" * 64,
                "part": number % 3,
                "parts": 3,
                "data": "aGk=" if number % 5 else "h",
            },
        ),
        "decided": (
            "security.decided",
            {"for_event_id": "e1", "rule_id": which, "stage": "rule", "rule": {"n": number}},
        ),
        "asked": ("security.asked", {"for_event_id": "e1", "ask_id": which, "status": "pending"}),
        "fs": ("fs.changed", {"action": "created", "path": "/a", "size": -1 if which else 4}),
        "exec": ("process.started", {"exec_id": which, "command": "ls"}),
        "exit": ("process.exited", {"exec_id": str(which), "exit_code": 0}),
        "begin": ("session.started", {"agent": f"a{number}", "name": 7 if which else "n"}),
        "stop": ("session.ended", {"status": "stopped"}),
        "dense": ("stream.declared", {"density": "dense", "first_seq": which}),
        "sparse": ("stream.declared", {"density": "sparse"}),
        "unknown": ("stream.declared", {"density": "unknown"}),
        "lost": ("stream.lost", {"from_seq": which, "to_seq": which + 2, "reason": "full"}),
        "closed": ("stream.closed", {"last_seq": number}),
        "better": (
            "stream.superseded",
            {"producer": "host", "epoch": 0, "stream": "ledger", "reason": "newer reader"},
        ),
        "odd": ("someone.else", {}),
    }
    return table[what]


USUAL = ("start", "end", "said", "answer", "tool", "result", "net", "call")
MIXED = (*USUAL, "user", "message", "failed", "fs", "exec", "exit", "begin", "odd", "fail")
SAID = ("again", "echo", "thought", "ask", "told", "submit", "body", "decided", "asked", "provider")
ALL = (
    *MIXED,
    *SAID,
    "total",
    "thread",
    "rollup",
    "stop",
    "dense",
    "sparse",
    "unknown",
    "lost",
    "closed",
    "better",
)

IDS = ("none", "id", "other", "index", "both", "later")


def steps(
    kinds: tuple[str, ...], ids: tuple[int, ...], links: tuple[int, ...], streams: int
) -> st.SearchStrategy[list[Step]]:
    """A session's events as small tuples, in the order in which each stream numbers them."""
    step = st.tuples(
        st.integers(0, streams - 1),
        st.sampled_from(kinds),
        st.sampled_from(ids),
        st.sampled_from(links),
        st.sampled_from((1, 1, 1, 0, 1000, -1)),
        st.sampled_from((0, 0, 0, 0, 0, 1)),
    )
    return st.lists(step, min_size=1, max_size=24)


SESSIONS = st.one_of(
    steps(USUAL, (0,), (0,), 1),  # one stream with boundaries
    steps(USUAL, (1, 1, 2), (0, 1, 2), 1),  # one stream with ids
    steps(USUAL, (1, 1, 2), (0, 1), 3),  # several streams with ids
    steps(MIXED, (0, 0, 1), (0, 1, 2, 3), 2),
    steps(ALL, (0, 1, 2, 3, 4, 5), (0, 1, 2, 3), 4),
    steps(("start", "end", "total", "thread", "said"), (0, 1, 2), (0,), 2),
    steps(("start", "end", "said", "user", "stop"), (1, 2, 5), (0,), 3),  # ids, beside streams without
    steps(("start", "end", "net", "fs", "tool", "result", "stop"), (0, 0, 0, 1), (0,), 3),
    steps(("user", "said", "answer", "end", "net"), (0, 0, 1), (0, 1), 2),
    steps(("start", "end", *SAID), (1, 1, 2), (0, 1, 3), 1),  # contents of one stream with ids
    steps(("start", "end", "user", *SAID), (0, 1, 2, 3), (0, 1, 2, 3), 3),
)


NUMBERED, EVERY_FOURTH, BESIDE, NOWHERE = range(4)
"""Which events have no number: none, every fourth, those of all streams but the first, all."""

RECEIPTS = st.sampled_from((NUMBERED, NUMBERED, EVERY_FOURTH, BESIDE, NOWHERE))


def build(session: list[Step], receipts: int = NUMBERED) -> list[Event]:
    """The events of a session, each stream in its order."""
    following = dict.fromkeys(STREAMS, 0)
    clock = dict.fromkeys(STREAMS, NOON)
    events: list[Event] = []
    for number, (stream, what, which_id, link, later, left_out) in enumerate(session):
        key = STREAMS[stream]
        following[key] += left_out
        type_, payload = _payload(what, number, which_id % 2)
        clock[key] += max(later, 0)
        event = Event(
            tenant="t",
            session_id="s",
            type=type_,
            producer=key[0],
            epoch=key[1],
            stream=key[2],
            payload=payload,
            at=None if later < 0 else clock[key],
        )
        if event.at is not None:
            event.occurred_at = str(event.at)
        name = IDS[which_id]
        if name in ("id", "both", "later"):
            event.turn_id = "#A" if name != "later" else "C"
        elif name == "other":
            event.turn_id = "B"
        if name in ("index", "both"):
            event.turn_index = 1
        if link == 1:
            event.trace_id = "trace"
        elif link == 2:
            event.tool_call_id = f"tool{which_id}"
        elif link == 3:
            event.model_call_id = f"call{number % 3}"
        if what in ("tool", "result"):
            event.tool_call_id = f"tool{number % 2}"
        without = (False, number % 4 == 3, stream > 0, True)[receipts]
        if without:
            event.receipt_key = f"r{number}"
        else:
            event.seq = following[key]
            following[key] += 1
        events.append(event)
    return events


def fresh(events: list[Event]) -> list[Event]:
    """Copies: a fold sets ``running``, and no two folds may share that."""
    return [copy.copy(event) for event in events]


def mostly_in_order(events: list[Event], late: list[int], interleave: random.Random) -> list[Event]:
    """An arrival: streams in order, mixed with each other; the events at the places ``late`` come at the end, or anywhere later."""
    lanes: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        lanes.setdefault((event.producer, event.stream), []).append(event)
    arrival: list[Event] = []
    while lanes:
        lane = interleave.choice(sorted(lanes))
        arrival.append(lanes[lane].pop(0))
        if not lanes[lane]:
            del lanes[lane]
    for place in late:
        event = arrival.pop(place % len(arrival))
        arrival.insert(interleave.randint(place % (len(arrival) + 1), len(arrival)), event)
    return arrival


def plain_turn(fold: TurnFold) -> dict[str, Any]:
    return {
        "body": fold.body,
        "flat": fold.flat,
        "calls": fold.calls,
        "tools": fold.tools,
        "parts": fold.parts,
        "findings": fold.findings,
    }


def row_key(table: str, row: Row) -> tuple[Any, ...]:
    """What tells a point row from the others of its table."""
    if table == "model_items":
        return item_key(row)
    if table == "tool_responses":
        return *point_key(row), row["response_index"]
    return point_key(row)


@dataclass
class Projection:
    """What is written: the worker's tables of one session."""

    turns: dict[str, dict[str, Any]] = field(default_factory=dict)
    points: dict[str, dict[Any, Row]] = field(default_factory=dict)
    loose: tuple[Any, Any, Any] = ([], [], [])
    gaps: list[Row] = field(default_factory=list)
    facts: Row | None = None
    findings: list[Row] = field(default_factory=list)

    def apply(self, changes: SessionChanges) -> None:
        for key in changes.removed_turns:
            del self.turns[key]
        for fold in changes.turns:
            self.turns[fold.turn.key] = copy.deepcopy(plain_turn(fold))
        for table, keys in changes.replaced_points.items():
            known = self.points[table]
            for place in keys:
                there = [one for one in known if one[: len(place)] == place]
                assert there, "a row is taken back that was not written"
                for one in there:
                    del known[one]
        for item in changes.replaced_items:
            del self.points["model_items"][item]
        points = dict(changes.points)
        if changes.items:
            points["model_items"] = [*points.get("model_items", []), *(item.row() for item in changes.items)]
        for table, rows in points.items():
            known = self.points.setdefault(table, {})
            for row in rows:
                key = row_key(table, row)
                assert key not in known, "a point row is written twice"
                known[key] = copy.deepcopy(row)
        if changes.loose is not None:
            self.loose = copy.deepcopy((changes.loose.calls, changes.loose.tools, changes.loose.parts))
        if changes.gaps is not None:
            self.gaps = copy.deepcopy(changes.gaps)
        if changes.facts is not None:
            self.facts = copy.deepcopy(changes.facts)
        if changes.findings is not None:
            self.findings = copy.deepcopy(changes.findings)

    @classmethod
    def of(cls, fold: SessionFold) -> Projection:
        return cls(
            turns={one.turn.key: plain_turn(one) for one in fold.turns},
            points={
                table: {row_key(table, row): row for row in rows}
                for table, rows in fold.points.items()
                if rows
            },
            loose=(fold.calls, fold.tools, fold.parts),
            gaps=fold.gaps,
            facts=fold.facts,
            findings=fold.findings,
        )

    def tidy(self) -> Projection:
        self.points = {table: rows for table, rows in self.points.items() if rows}
        return self


def taken(state: SessionState, include_open: bool, committed: list[Event]) -> SessionChanges:
    """What the worker does: on ``NeedsHistory`` it reads the ledger and asks again."""
    try:
        return state.take_changes(include_open, force=True)
    except NeedsHistory:
        state.restore(fresh(committed))
        return state.take_changes(include_open, force=True)


def extend(state: SessionState, batch: list[Event], committed: list[Event]) -> None:
    try:
        state.extend(batch)
    except NeedsHistory:
        state.restore(fresh(committed))
