"""Generated fleets for the properties of the whole fold: sessions that fork, several streams, epochs and producers, every event type of contract 6.

A fleet is drawn as small tuples of numbers, so that a failing one shrinks to something a person can read. ``build`` turns it into envelopes;
``arrival`` into the bytes of a partition: any order that keeps the winners, duplicates in other spellings, losers of conflicts, dead records.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st

Envelope = dict[str, Any]
Payload = dict[str, Any]

NOON: Final = datetime(2026, 5, 4, 12, tzinfo=UTC)

SESSIONS: Final = (("default", "s0"), ("default", "s1"), ("default", "s2"), ("other", "s0"))
"""Four holders of calls, two of one name."""
LANES: Final = (
    ("harness", 0, "ledger"),
    ("harness", 0, "file:a"),
    ("host", 0, "ledger"),
    ("harness", 1, "ledger"),
    ("recorder", 0, "bus"),
)

CORRELATIONS: Final[tuple[Envelope, ...]] = (
    {},
    {"turn_id": "A"},
    {"turn_id": "A", "model_call_id": "c0"},
    {"turn_id": "A", "tool_call_id": "t0"},
    {"turn_id": "B"},
    {"turn_id": "B", "model_call_id": "c0"},
    {"turn_id": "A", "model_call_id": "c1"},
    {"turn_id": "A", "tool_call_id": "t0", "model_call_id": "c0"},
    {"turn_id": "A", "tool_call_id": "t0", "model_call_id": "c1"},
    {"model_call_id": "c0"},
    {"model_call_id": "c9"},
    {"tool_call_id": "t0"},
    {"tool_call_id": "t1", "model_call_id": "c1"},
    {"trace_id": "tr"},
    {"turn_id": "B", "trace_id": "tr"},
    {"turn_index": 0},
    {"turn_id": "A", "turn_index": 0},
    {"turn_id": "B", "turn_index": 0},
    {"turn_id": "A", "turn_index": 1},
    {"turn_id": "#0"},
)
"""What an event says it belongs to."""

PLAIN, INHERITED, DERIVED, CLAIMED, EVAL, IMPORT, SPOILT, RICH, SKIPPING, UNNUMBERED, CHILD = range(11)
ODDITIES: Final = (
    *(PLAIN,) * 30,
    *(SPOILT, SPOILT, SKIPPING, SKIPPING, UNNUMBERED, UNNUMBERED, INHERITED, INHERITED),
    *(DERIVED, CLAIMED, EVAL, IMPORT, RICH, CHILD),
)
"""What is odd about an event: mostly nothing."""

PAUSES: Final = (*(1_000,) * 6, 0, 0, None, 3_600_000, 86_400_000, -5_000)
"""ms since the event before in the same stream; None is no time at all, less than zero a clock that was set back."""

HOSTILE: Final[tuple[Any, ...]] = (
    "[REDACTED]",
    12.5,
    -5,
    10**30,
    2**63 - 1,
    7.0,
    True,
    [],
    {},
    "",
    None,
    "é\u2028😀",
    [1, {"deep": None}],
    1e308,
)
"""What stands in a payload field where something else was agreed."""

PROVIDERS: Final = (
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-4o"),
    ("google", "gemini-2.5-pro"),
    ("someone", "m"),
)
SOURCES: Final = ("response", "event", "transcript", "estimate")


def _who(value: int) -> Payload:
    provider, model = PROVIDERS[value % 4]
    return {"provider": provider, "model": model}


def _figures(value: int) -> Payload:
    """Counters of one request; every value says something else of what is known."""
    return (
        {"input": 40, "output": 9, "cache_read": 10, "cache_write": 6},
        {"input": 40, "output": 9, "cache_read": 0, "reasoning": 4},
        {"input": 40, "output": 9},
        {"output": 3},
        {"input": 5, "output": 2, "cache_read": 8},
        {
            "input": 60,
            "output": 1,
            "cache_read": 3,
            "cache_write": 9,
            "cache_write_5m": 4,
            "cache_write_1h": 5,
        },
        {"input": 60, "cache_read": 3, "cache_write": 1, "cache_write_5m": 4},
        {},
    )[value]


def _message(value: int) -> Payload:
    """A message with its figures: the same in every session, as a copied history is; one of its ids is used twice."""
    number = value % 3
    return {
        **_who(number),
        "message_id": f"m{number}",
        "usage": {"input": 10 * (number + 1), "output": 3 + value // 6, "cache_read": 0},
    }


class Counters:
    """What the running totals of a session stand at, so that generated reports rise as real ones do, and sometimes do not."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}

    def report(self, value: int, name: str) -> Payload:
        stands = self._at.get(name, 0)
        rise = 5 * (value + 1)
        told: Payload
        if value < 3:
            total, told = stands + rise, {"last": {"input": rise}}
        elif value == 3:
            total, told = stands + rise, {}
        elif value == 4:  # begins again
            total, told = 2, {"last": {"input": 2}}
        elif value == 5:  # less, and not begun again
            total, told = max(stands - 3, 0), {"last": {"input": 1}}
        elif value == 6:  # a request was missed
            total, told = stands + rise, {"last": {"input": 1}}
        else:
            total, told = stands + rise, {"start_known": False, "last": {"input": rise}}
        if value != 5:
            self._at[name] = total
        return {
            **_who(1 if name == "th" else value),
            "counter_kind": "cumulative",
            "usage": {"input": total, "output": total // 3, "cache_read": 0},
            **told,
        }


def _ranges(value: int) -> Payload:
    """A lost or elided range: usual, of another stream, incomplete, reversed."""
    given: Payload = {"from_seq": value, "to_seq": value + 2, "reason": "full"}
    if value == 5:
        given |= {"producer": "host", "stream": "ledger"}
    elif value == 6:
        del given["to_seq"]
    elif value == 7:
        given["to_seq"] = 1
    return given


_GUARDS = ("passed", "blocked", "coerced")

_TELL: dict[str, Callable[[int, int], Payload]] = {
    "session.started": lambda v, n: {
        "agent": f"a{n}",
        "mode": "task",
        "name": f"n{v}",
        "model": PROVIDERS[v % 4][1],
    },
    "session.resumed": lambda v, n: {"agent": f"a{n}"},
    "session.forked": lambda v, n: {
        "parent_session_id": f"s{v % 3}",
        **({} if v < 2 else {"at_seq": 2 * v}),
        **({"stream": "ledger"} if v == 6 else {}),
    },
    "session.tools_changed": lambda v, n: {"tools": ["bash"] * v},
    "session.ended": lambda v, n: {"status": ("stopped", "crashed", "lost")[v % 3], "exit_code": v},
    "stream.declared": lambda v, n: {
        "density": ("dense", "sparse", "unknown")[v % 3],
        **({"first_seq": v - 3} if v > 3 else {}),
        **({"stream": "bus"} if v == 7 else {}),
    },
    "stream.closed": lambda v, n: {"last_seq": 3 * v},
    "stream.lost": lambda v, n: _ranges(v),
    "stream.elided": lambda v, n: _ranges(v),
    "stream.superseded": lambda v, n: {
        "producer": LANES[v % 5][0],
        "epoch": LANES[v % 5][1],
        "stream": LANES[v % 5][2],
        "reason": "a newer reader",
    },
    "capture.recorded": lambda v, n: {"capture_id": f"k{v}", "content_sha256": "00", "bytes": v},
    "driver.claimed": lambda v, n: {"generation": v},
    "driver.exited": lambda v, n: {"generation": v, "outcome": "completed"},
    "attempt.started": lambda v, n: {"attempt_id": v, "provider": "openai"},
    "attempt.finished": lambda v, n: {"attempt_id": str(v), "outcome": "completed"},
    "provider_session.observed": lambda v, n: {"provider_session_id": f"ps{v}"},
    "turn.started": lambda v, n: {"input_preview": f"go {n}", **({"provider_thread": "th"} if v < 4 else {})},
    "turn.completed": lambda v, n: {
        "status": ("completed", "failed", "interrupted", "aborted", "odd")[v % 5],
        **({"error": {"code": v}} if v % 5 == 1 else {}),
        **({"duration_ms": n} if v > 5 else {}),
    },
    "message.recorded": lambda v, n: {
        "role": ("user", "assistant", "user", "tool", "system", "assistant", "user", "user")[v],
        **(
            {"text": f"said {n}"}
            if v % 2 == 0
            else {"content": [{"type": "tool_result" if v == 7 else "text", "text": "it"}]}
        ),
    },
    "model_call.started": lambda v, n: {
        **({"provider": "openai"} if v == 6 else _who(v)),
        "context_tokens": n,
        "context_window": 1000,
        **({"message_id": "m0"} if v == 7 else {}),
    },
    "model_call.delta": lambda v, n: {"ordinal": n, "text": "…"},
    "model_call.completed": lambda v, n: {
        **_who(v // 2),
        "usage": _figures(v),
        **({"stop_reason": "end_turn", "text": "so"} if v % 2 else {}),
    },
    "model_call.failed": lambda v, n: {
        "error_class": "rate_limit",
        "status_code": 429,
        **({**_who(v), "usage": _figures(v)} if v > 2 else {}),
    },
    "model_call.retried": lambda v, n: {"attempt": v, "error_class": "overloaded"},
    "usage.reported": lambda v, n: {
        **_who(v % 4),
        "usage": _figures(v),
        "source": SOURCES[v % 4],
        "final": v > 5,
    },
    "tool_call.requested": lambda v, n: {
        "tool_name": ("bash", "srv__x", "x")[v % 3],
        "call_index": n,
        **({"call_tool_origin": ("native", "mcp", "local")[v % 3]} if v < 6 else {}),
        **({"server_name": "srv"} if v == 1 else {}),
    },
    "tool_call.started": lambda v, n: {"tool_name": "bash"},
    "tool_call.completed": lambda v, n: {
        "status": ("ok", "error")[v % 2],
        "duration_ms": v,
        "bytes_sent": n,
        **({"error_message": "no"} if v % 2 else {}),
    },
    "tool_call.denied": lambda v, n: {"by": ("policy", "guard", "user")[v % 3], "reason": "no"},
    "tool_results.submitted": lambda v, n: {
        "tool_call_ids": [("t0", "t1", "t7")[v % 3]],
        "context_tokens": 10 * n,
    },
    "guard.evaluated": lambda v, n: {"guard": f"g{n}", "outcome": _GUARDS[v % 3]},
    "slot.written": lambda v, n: {"slot": f"x{v % 3}", "old": v, "new": [v, n]},
    "transition.decided": lambda v, n: {"state": "q", "verdict": "go", "candidates": list(range(5 * v))},
    "state.observed": lambda v, n: {
        "state": "q",
        "when": ("before", "after")[v % 2],
        "slots": {"x0": v, "x1": None, "x2": {"y": n}},
        "required": ["x0", "x1", "x9"],
    },
    "limit.reached": lambda v, n: {
        "limit": ("token_budget", "iterations", "rate", "time", "cost")[v % 5],
        "value": v + 0.5,
    },
    "context.compaction_started": lambda v, n: {"trigger": "window"},
    "context.compacted": lambda v, n: {"tokens_before": 10 * v, "tokens_after": v, "strategy": "summary"},
    "answer.finalized": lambda v, n: {
        "exact": v % 2 == 0,
        **({"value": {"a": v}} if v > 3 else {"text": f"it is {v}"}),
    },
    "subagent.started": lambda v, n: {"agent": "helper", "child_session_id": f"s{v % 3}"},
    "subagent.finished": lambda v, n: {"agent": "helper", "status": "completed"},
    "net.requested": lambda v, n: {
        "domain": "api.anthropic.com" if v == 4 else "a.example",
        "port": 443,
        "decision": ("allowed", "denied", "error", "redirected")[v % 4],
        "bytes_sent": n,
    },
    "dns.queried": lambda v, n: {"qname": "a.example", "qtype": "A", "decision": "allowed"},
    "fs.changed": lambda v, n: {
        "action": ("created", "modified", "deleted", "overflow")[v % 4],
        "path": f"/{n}",
        "size": v - 1,
    },
    "process.started": lambda v, n: {"exec_id": v % 2, "command": f"run {n}"},
    "process.exited": lambda v, n: {"exec_id": str(v % 2), "exit_code": v, "duration_ms": n},
    "process.audited": lambda v, n: {"pid": n, "ppid": 1, "uid": 0, "exe": "/bin/a", "argv": "a"},
    "credential.used": lambda v, n: {"source": "env", "reference": "credential:a", "outcome": "brokered"},
    "security.rule_matched": lambda v, n: {
        "for_event_id": f"e{v}",
        "rule_id": "r",
        "rule_action": "allow",
        "detection_level": "low",
        "rule": "x",
        "event": {},
    },
    "security.decided": lambda v, n: {
        "for_event_id": f"e{v}",
        "stage": "net",
        "previous": "a",
        "requested": "b",
        "effective": "c",
    },
    "security.asked": lambda v, n: {"for_event_id": f"e{v}", "ask_id": f"q{n}", "status": "pending"},
    "mcp.observed": lambda v, n: {
        "method": "tools/list" if v == 7 else "tools/call",
        "direction": ("request", "response")[v % 2],
        "server_name": "srv",
        "tool_name": ("x", "y")[v // 2 % 2],
        "request_id": v // 2,
    },
    "body.recorded": lambda v, n: {
        "for_event_id": f"e{v}",
        "source": "net",
        "direction": "request",
        "original_bytes": 3,
        "truncated": False,
        "sha256": "00",
        "data": "YWJj",
    },
    "artifact.checked": lambda v, n: {"path": "/out", "expected": True, "present": v % 2 == 0},
    "recorder.settled": lambda v, n: {"outcome": "completed"},
    "counter.reported": lambda v, n: {
        "name": "c",
        "labels": {"job": "j"},
        "value": n,
        "temporality": "cumulative",
    },
    "someone.else": lambda v, n: {"free": [v, {"n": n}]},
}
"""A payload of each type of contract 6, and of one that nobody knows: from a choice (0 to 7) and the event's number."""

TYPES: Final = tuple(_TELL)
FORMS: Final = ("message", "sample", "transcript", "counted", "copied", "rollup", "request")
"""More ways of the types that carry usage."""
WHATS: Final = (*TYPES, *FORMS)
CALLS: Final = (
    "model_call.started",
    "model_call.completed",
    "model_call.failed",
    "model_call.retried",
    "usage.reported",
    *FORMS,
)
TURNS: Final = ("turn.started", "turn.completed", "turn.started", "turn.completed", "message.recorded")
TOOLS: Final = (
    "tool_call.requested",
    "tool_call.started",
    "tool_call.completed",
    "tool_call.denied",
    "tool_results.submitted",
    "mcp.observed",
)
STREAMS: Final = ("stream.declared", "stream.closed", "stream.lost", "stream.elided", "stream.superseded")

Step = tuple[int, int, str, int, int, int, int]
"""(session, lane, what, correlation, choice, pause, oddity)."""


def _steps(whats: Sequence[str], sessions: int, lanes: int, correlations: int, most: int = 26) -> Any:
    step = st.tuples(
        st.integers(0, sessions - 1),
        st.integers(0, lanes - 1),
        st.sampled_from(whats),
        st.integers(0, correlations - 1),
        st.integers(0, 7),
        st.sampled_from(range(len(PAUSES))),
        st.sampled_from(ODDITIES),
    )
    return st.one_of(*(st.lists(step, min_size=least, max_size=most) for least in (1, 9, 18)))


@st.composite
def _some(draw: st.DrawFn) -> list[Step]:
    """A fleet of a few types only: what is rare beside 60 others meets itself."""
    whats = draw(st.lists(st.sampled_from(WHATS), min_size=2, max_size=9, unique=True))
    sessions, lanes = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    found: list[Step] = draw(_steps((*TURNS, *whats), sessions, lanes, len(CORRELATIONS)))
    return found


NOTES: Final = (
    "guard.evaluated",
    "slot.written",
    "transition.decided",
    "state.observed",
    "state.observed",
    "limit.reached",
    "context.compacted",
    "answer.finalized",
)

AS_DRAWN, ALL_EVAL, ALL_IMPORTED, NOWHERE, BESIDE_TIMELESS, TURN_B_EVAL = range(6)
MANNERS: Final = (
    *(AS_DRAWN,) * 9,
    ALL_EVAL,
    ALL_IMPORTED,
    NOWHERE,
    BESIDE_TIMELESS,
    BESIDE_TIMELESS,
    TURN_B_EVAL,
)
"""What all events of a fleet share: their kind, no numbers, no times beside the first stream, one turn that is an evaluation."""

Fleet = tuple[int, list[Step]]
"""(manner, steps)."""

PROFILES: Final[tuple[tuple[Sequence[str], int, int, int], ...]] = (
    ((*TURNS, *CALLS), 1, 2, 11),
    ((*TURNS, "counted", "counted", "copied", "usage.reported", "rollup"), 1, 4, 5),
    (("turn.started", "turn.completed", "counted", "counted", "copied"), 1, 1, 5),
    (("message", "message", "session.forked", "model_call.completed", "transcript"), 4, 1, 11),
    ((*TURNS, *TOOLS), 1, 2, 14),
    (("turn.started", "turn.completed", *NOTES), 1, 2, 5),
    (("process.started", "process.exited", "process.started", "process.exited", "turn.started"), 1, 4, 5),
    ((*STREAMS, "turn.started", "turn.completed", "net.requested"), 1, 4, 5),
    ((*TURNS, "session.started", "session.ended", "message.recorded", "tool_call.started"), 1, 3, 5),
    ((*TURNS, *WHATS), 3, 5, len(CORRELATIONS)),
    (TYPES, 1, 1, 2),
    (("turn.started", "turn.completed", "tool_call.requested", "tool_call.completed"), 1, 1, 5),
    (("sample", "sample", "model_call.failed", "model_call.completed", "message", "turn.started"), 1, 1, 11),
)
"""(what, sessions, lanes, correlations): rules meet each other when few things happen in one place."""


def _sown(seed: int, size: int, dropped: frozenset[int]) -> list[Step]:
    """A long fleet from a number: more of them in a second than can be drawn step by step. It shrinks to its beginning, and by what is dropped."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        whats: Sequence[str] = (*TURNS, *chance.sample(WHATS, chance.randint(2, 9)))
        sessions, lanes, correlations = chance.randint(1, 3), chance.randint(1, 5), len(CORRELATIONS)
    else:
        whats, sessions, lanes, correlations = chance.choice(PROFILES)
    steps: list[Step] = [
        (
            chance.randrange(sessions),
            chance.randrange(lanes),
            chance.choice(whats),
            chance.randrange(correlations),
            chance.randrange(8),
            chance.randrange(len(PAUSES)),
            chance.choice(ODDITIES),
        )
        for _ in range(size)
    ]
    return [step for place, step in enumerate(steps) if place not in dropped] or steps[:1]


_DRAWN: Final[st.SearchStrategy[list[Step]]] = st.one_of(_some(), *(_steps(*profile) for profile in PROFILES))
_SOWN: Final[st.SearchStrategy[list[Step]]] = st.builds(
    _sown,
    st.integers(0, (1 << 24) - 1),
    st.integers(1, 36),
    st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 35), max_size=30)),
)
FLEETS: Final[st.SearchStrategy[Fleet]] = st.tuples(
    st.sampled_from(MANNERS), st.sampled_from((_DRAWN, _SOWN, _SOWN)).flatmap(lambda steps: steps)
)


def build(fleet: Fleet) -> list[Envelope]:
    """The envelopes of a fleet, each stream in the order of its numbers, no identity twice."""
    following: dict[tuple[int, int], int] = {}
    clocks: dict[tuple[int, int], datetime] = {}
    counters = [Counters() for _ in SESSIONS]
    envelopes: list[Envelope] = []
    manner, steps = fleet
    for number, (session, lane, what, correlation, value, pause, oddity) in enumerate(steps):
        tenant, session_id = SESSIONS[session]
        producer, epoch, stream = LANES[lane]
        place = (session, lane)
        type_, payload = _told(what, value, number, counters[session])
        envelope: Envelope = {"tenant": tenant, "session_id": session_id, "producer": producer}
        envelope |= {
            "epoch": epoch,
            "stream": stream,
            "type": type_,
            "payload": payload,
            **CORRELATIONS[correlation],
        }
        if manner == BESIDE_TIMELESS and lane and what in TURNS:
            what = "guard.evaluated"  # a stream without boundaries and times
        waited = None if manner == BESIDE_TIMELESS and lane else PAUSES[pause]
        clock = clocks.get(place, NOON) + timedelta(milliseconds=waited or 0)
        clocks[place] = clock
        if waited is not None:
            envelope["occurred_at"] = clock.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        seq = following.get(place, 0) + (oddity == SKIPPING)
        if oddity == UNNUMBERED or manner == NOWHERE:
            envelope["receipt_key"] = f"r{number}"
        else:
            envelope["seq"] = seq
            following[place] = seq + 1
        _make_odd(envelope, oddity, number + value)
        if manner == ALL_EVAL or (manner == TURN_B_EVAL and envelope.get("turn_id") == "B"):
            envelope |= {"kind": "eval", "run_id": "run"}
        elif manner == ALL_IMPORTED:
            envelope["kind"] = "import"
        envelopes.append(envelope)
    return envelopes


def _told(what: str, value: int, number: int, counters: Counters) -> tuple[str, Payload]:
    if what == "message":
        return "model_call.completed", {**_message(value), "stop_reason": "end_turn"}
    if what == "sample":
        sampled = _message(value) if value > 3 else {**_who(value)}
        return "usage.reported", {**sampled, "counter_kind": "snapshot", "usage": {"output": value}}
    if what == "transcript":
        stop = {"stop_reason": "end_turn"} if value % 2 else {}
        return "usage.reported", {**_message(value), "source": "transcript", **stop}
    if what == "counted":
        return "usage.reported", {**counters.report(value, "th"), "provider_thread": "th"}
    if what == "copied":
        return "usage.reported", {**counters.report(value, f"u{value % 2}"), "usage_stream": f"u{value % 2}"}
    if what == "rollup":
        return "usage.reported", {**_who(value % 2), "counter_kind": "rollup", "usage": _figures(value)}
    if what == "request":
        ids = {"request_id": f"q{value % 2}", **({"message_id": f"m{value % 3}"} if value > 3 else {})}
        return "model_call.completed", {
            **_who(0),
            **ids,
            "usage": _figures(value % 3),
            "reported_cost_usd": 0.25,
        }
    return what, _TELL[what](value, number)


def _make_odd(envelope: Envelope, oddity: int, number: int) -> None:
    if oddity in (INHERITED, DERIVED, CLAIMED):
        envelope["provenance"] = ("inherited", "derived", "claimed")[oddity - INHERITED]
    elif oddity == EVAL:
        envelope |= {"kind": "eval", "run_id": "run"}
    elif oddity == IMPORT:
        envelope["kind"] = "import"
    elif oddity == CHILD:
        envelope["parent_session_id"] = "s0"
    elif oddity == RICH:
        envelope |= {
            "schema_version": 2,
            "event_id": f"e{number % 8}",
            "origin": {"process": "p", "pid": number, "vm": "vm"},
            "unheard_of": [number, None, {"a": 0.1}],
            "observed_at": "2026-05-04T12:00:00Z",
        }
    elif oddity == SPOILT:
        payload = dict(envelope["payload"])
        names = sorted(payload)
        if names:
            name = names[number % len(names)]
            inner = payload[name]
            if isinstance(inner, dict) and inner and number % 3:
                key = sorted(inner)[number % len(inner)]
                payload[name] = {**inner, key: HOSTILE[number % len(HOSTILE)]}
            else:
                payload[name] = HOSTILE[number % len(HOSTILE)]
        envelope["payload"] = payload


# --- arrival ----------------------------------------------------------------------------------------------------------------------

DEAD: Final = (
    b"",
    b"{",
    b"[1]",
    b"\xff",
    b'{"session_id":"s0","seq":1.5,"type":"x"}',
    b'{"session_id":"s0","type":"x"}',
    b'{"session_id":"s0","seq":0,"type":"x","payload":{"a":NaN}}',
    b'{"session_id":"s0","seq":0,"type":"x","kind":"eval"}',
    b'{"session_id":"s0","seq":0,"type":"x","occurred_at":"2026-05-04T10:00:60Z"}',
    b'{"session_id":"s0","seq":0,"type":"\\u0000"}',
)


def plain(envelope: Envelope) -> bytes:
    return json.dumps(envelope, ensure_ascii=False).encode()


def respelt(envelope: Envelope, chance: random.Random) -> bytes:
    """The same content in other bytes: order, defaults, nulls, escapes, numbers, the same instant elsewhere."""
    other = dict(sorted(envelope.items(), reverse=chance.random() < 0.5))
    if chance.random() < 0.5:
        other["observed_at"] = "2030-01-01T00:00:00Z"
        other.setdefault("schema_version", 1)
        other.setdefault("kind", "live")
        other.setdefault("provenance", "observed")
        other.setdefault("trace_id", "")
        other.setdefault("turn_id", None)
    for name, default in (("tenant", "default"), ("producer", "harness"), ("epoch", 0), ("stream", "ledger")):
        if other.get(name) == default and chance.random() < 0.5:
            del other[name]
    if "seq" in other and chance.random() < 0.3:
        other["seq"] = float(other["seq"])
    if "occurred_at" in other and chance.random() < 0.5:
        instant = datetime.fromisoformat(other["occurred_at"])
        from_there = instant.astimezone(_ELSEWHERE)
        other["occurred_at"] = from_there.isoformat(timespec="microseconds")
    return json.dumps(other, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1))).encode()


_ELSEWHERE = datetime.fromisoformat("2026-01-01T00:00:00-09:30").tzinfo


def loser(envelope: Envelope, number: int) -> Envelope:
    """Another record with the identity of this one."""
    if number % 3 == 0:
        return {**envelope, "type": "another.fact"}
    return {**envelope, "payload": {**envelope["payload"], "told_otherwise": number}}


@dataclass(frozen=True)
class Arrival:
    """How a partition gets a fleet: (position of a winner, what comes beside it) as drawn."""

    repeated: list[int]
    contested: list[int]
    dead: list[int]


ARRIVALS: Final = st.builds(
    Arrival,
    repeated=st.lists(st.integers(0, 63), max_size=6),
    contested=st.lists(st.integers(0, 63), max_size=3),
    dead=st.lists(st.integers(0, len(DEAD) - 1), max_size=2),
)


def losers(envelopes: Sequence[Envelope], given: Arrival) -> list[tuple[int, Envelope]]:
    """(place of the winner, record that loses to it): a fixed set for a fleet and its arrival."""
    return [
        (place % len(envelopes), loser(envelopes[place % len(envelopes)], number))
        for number, place in enumerate(given.contested)
    ]


def arrive(envelopes: Sequence[Envelope], given: Arrival, chance: random.Random | None) -> list[bytes]:
    """The records in an order that keeps the winners; None: winners as built, then the rest."""
    records: list[tuple[int, bytes]] = [(place, plain(envelope)) for place, envelope in enumerate(envelopes)]
    records += [(place, plain(lost)) for place, lost in losers(envelopes, given)]
    if chance is None:
        return [raw for _, raw in records]
    records += [
        (place % len(envelopes), respelt(envelopes[place % len(envelopes)], chance))
        for place in given.repeated
    ]
    records += [(place, plain(lost)) for place, lost in losers(envelopes, given) if chance.random() < 0.5]
    chance.shuffle(records)
    won: set[int] = set()
    arrived: list[bytes] = []
    for place, raw in records:
        if place not in won:  # whatever was drawn first, the winner comes first
            won.add(place)
            arrived.append(
                plain(envelopes[place]) if chance.random() < 0.7 else respelt(envelopes[place], chance)
            )
        arrived.append(raw)
    for number in given.dead:
        arrived.insert(chance.randint(0, len(arrived)), DEAD[number])
    return arrived
