"""The load: turns of fourteen events, 735 to 960 bytes a record, in two shapes.

``backlog``: few sessions with many turns, their events interleaved one by one. ``fanout``: thousands of sessions with one turn each, a thousand of them
running side by side. Seeded: the same arguments give the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

START_US = 1_790_000_000_000_000
"""An arbitrary instant; every event of a session is 20 ms after the one before."""

WORDS = [
    "the",
    "build",
    "fails",
    "on",
    "the",
    "second",
    "step",
    "because",
    "the",
    "cache",
    "key",
    "changed;",
    "look",
    "at",
    "the",
    "log,",
    "find",
    "the",
    "first",
    "error",
    "and",
    "say",
    "which",
    "file",
    "should",
    "be",
    "mended",
    "before",
    "anything",
    "else",
    "is",
    "tried",
    "again",
    "by",
    "hand",
    "or",
    "by",
    "the",
    "machine",
]


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a producer sends it."""

    key: bytes
    value: bytes
    ends_turn: tuple[str, str] | None
    """(session_id, turn_id) when this record ends a turn."""


def _prose(size: int) -> str:
    rng = random.Random("prose")
    return " ".join(rng.choice(WORDS) for _ in range(size // 4))[:size]


PROSE = _prose(1 << 16)


def _text(rng: random.Random, length: int) -> str:
    start = rng.randrange(len(PROSE) - length)
    return PROSE[start : start + length]


def _turn(rng: random.Random, turn: int) -> list[tuple[str, dict[str, object], dict[str, str]]]:
    """The fourteen events of one turn: (type, payload, correlation)."""
    a, b = f"call_{turn}_1", f"call_{turn}_2"
    t1, t2 = f"tool_{turn}_1", f"tool_{turn}_2"
    usage = {
        "input": rng.randrange(900, 9000),
        "output": rng.randrange(50, 900),
        "cache_read": rng.randrange(0, 9000),
        "reasoning": 12,
    }
    model = {"provider": "anthropic", "model": "claude-sonnet-4-5"}

    def completed(message: str, stop: str) -> dict[str, object]:
        return {
            **model,
            "message_id": message,
            "status_code": 200,
            "stop_reason": stop,
            "latency_ms": rng.randrange(400, 9000),
            "ttft_ms": rng.randrange(90, 800),
            "text": _text(rng, 130),
            "usage": usage,
            "token_convention": "exclusive",
            "source": "response",
        }

    start = {
        **model,
        "method": "POST",
        "path": "/v1/messages",
        "messages_count": 7,
        "tools_count": 12,
        "note": _text(rng, 260),
    }
    salt = f"{rng.getrandbits(48):012x}"
    arguments = json.dumps({"command": "grep -rn cache_key build/", "why": _text(rng, 240)})
    return [
        ("turn.started", {"input_preview": _text(rng, 420)}, {}),
        ("message.recorded", {"role": "user", "text": _text(rng, 440)}, {}),
        ("model_call.started", start, {"model_call_id": a}),
        ("model_call.completed", completed(f"msg_{salt}_a", "tool_use"), {"model_call_id": a}),
        (
            "tool_call.requested",
            {"tool_name": "bash", "arguments": arguments, "call_index": 0, "call_tool_origin": "native"},
            {"model_call_id": a, "tool_call_id": t1},
        ),
        (
            "tool_call.requested",
            {"tool_name": "read_file", "arguments": arguments, "call_index": 1, "call_tool_origin": "native"},
            {"model_call_id": a, "tool_call_id": t2},
        ),
        (
            "tool_call.completed",
            {"status": "ok", "duration_ms": 31, "preview": _text(rng, 380)},
            {"tool_call_id": t1},
        ),
        (
            "tool_call.completed",
            {"status": "ok", "duration_ms": 12, "preview": _text(rng, 380)},
            {"tool_call_id": t2},
        ),
        (
            "net.requested",
            {
                "domain": "packages.example.org",
                "port": 443,
                "decision": "allowed",
                "method": "GET",
                "path": "/simple/" + _text(rng, 300).replace(" ", "-"),
                "status_code": 200,
                "bytes_sent": 412,
                "bytes_received": 18231,
                "duration_ms": 84,
            },
            {"tool_call_id": t1},
        ),
        (
            "tool_results.submitted",
            {"tool_call_ids": [t1, t2], "note": _text(rng, 380)},
            {"model_call_id": b},
        ),
        ("model_call.started", start, {"model_call_id": b}),
        ("model_call.completed", completed(f"msg_{salt}_b", "end_turn"), {"model_call_id": b}),
        ("message.recorded", {"role": "assistant", "text": _text(rng, 440)}, {}),
        ("turn.completed", {"status": "completed", "duration_ms": 20 * 13, "note": _text(rng, 390)}, {}),
    ]


EVENTS_A_TURN = 14


def _clock(us: int) -> Callable[[], str]:
    from datetime import UTC, datetime, timedelta

    base = datetime.fromtimestamp(us / 1e6, UTC)
    step = 0

    def tick() -> str:
        nonlocal step
        step += 1
        return (base + timedelta(milliseconds=20 * step)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"

    return tick


def _session(rng: random.Random, name: str, turns: int) -> Iterator[Record]:
    tick = _clock(START_US + rng.randrange(10**9))
    key = f"acme/{name}".encode()
    seq = 0
    for turn in range(turns):
        turn_id = f"turn_{turn}_{rng.getrandbits(32):08x}"
        for kind, payload, links in _turn(rng, turn):
            event = {
                "schema_version": 1,
                "tenant": "acme",
                "session_id": name,
                "producer": "harness",
                "epoch": 1,
                "stream": "ledger",
                "seq": seq,
                "type": kind,
                "occurred_at": tick(),
                "turn_id": turn_id,
                "trace_id": f"trace-{turn_id}",
                **links,
                "origin": {"host": "vm-17", "process": "agent", "pid": 4242, "exec": "e-7"},
                "payload": payload,
            }
            seq += 1
            ends = (name, turn_id) if kind == "turn.completed" else None
            yield Record(key, json.dumps(event, separators=(",", ":")).encode(), ends)


def records(shape: str, events: int, *, seed: int = 7, prefix: str = "s") -> Iterator[Record]:
    """About ``events`` records of one shape, whole turns only, in the order in which they are produced."""
    rng = random.Random(f"{shape}/{seed}")
    if shape == "backlog":
        sessions = 200
        turns = max(1, round(events / EVENTS_A_TURN / sessions))
        side_by_side = sessions
    elif shape == "fanout":
        sessions = max(1, round(events / EVENTS_A_TURN))
        turns = 1
        side_by_side = 1000
    else:
        raise ValueError(f"{shape!r} is no shape of load: backlog or fanout")
    waiting = iter(range(sessions))
    running: list[Iterator[Record]] = []

    def fill() -> None:
        while len(running) < side_by_side:
            number = next(waiting, None)
            if number is None:
                return
            running.append(_session(random.Random(rng.getrandbits(64)), f"{prefix}-{seed}-{number}", turns))

    fill()
    while running:
        still: list[Iterator[Record]] = []
        for session in running:
            record = next(session, None)
            if record is not None:
                yield record
                still.append(session)
        running = still
        fill()
