"""Generated traffic: what harnesses produce of some sessions, late, twice, contradicting, with gaps, clocks that jump, and garbage."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import orjson

from turnledger.contract.times import utc_text

NOON = 1_772_370_000_000_000
"""µs since 1970: the hour before the simulated database's clock begins."""
TENANTS = ("default", "acme")
STREAMS = (("harness", 0, "ledger"), ("host", 0, "bus"), ("harness", 1, "ledger"))


@dataclass(slots=True)
class Produced:
    """One record before it has an offset."""

    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class SimulatedRecord:
    """One record of a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Traffic:
    """What comes, partition by partition, in the order of the log."""

    lanes: list[list[Produced]]
    sessions: list[tuple[str, str]]
    counts: dict[str, int] = field(default_factory=dict)
    """How often what was made: ``events`` ``duplicates`` ``conflicts`` ``late`` ``gaps`` ``garbage`` ``two_partitions``."""


def _payload(what: str, number: int, dice: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(type, payload, correlation fields)."""
    if what == "start":
        return "turn.started", {"input_preview": f"go {number}"}, {}
    if what == "end":
        return "turn.completed", {"status": dice.choice(("completed", "completed", "failed"))}, {}
    if what == "user":
        return "message.recorded", {"role": "user", "text": f"hello {number}"}, {}
    if what == "said":
        return "message.recorded", {"role": "assistant", "text": f"well {number} ü"}, {}
    if what == "call":
        usage = {"input": 10 + number, "output": dice.randrange(9), "cache_read": number % 4}
        name = {"model_call_id": f"call{number}"} if dice.random() < 0.5 else {}
        model = dice.choice(("m-small", "m-large"))
        return "model_call.completed", {"provider": "openai", "model": model, "usage": usage}, name
    if what == "total":
        usage = {"input": 50 * (number + 1), "output": 5 * number, "cache_read": 0}
        payload = {"provider": "openai", "model": "m-sum", "counter_kind": "cumulative", "usage": usage}
        return "usage.reported", payload | {"start_known": True}, {}
    if what == "tool":
        return "tool_call.requested", {"tool_name": "bash"}, {"tool_call_id": f"tool{number // 2}"}
    if what == "result":
        return (
            "tool_call.completed",
            {"status": "ok", "tool_name": "bash"},
            {"tool_call_id": f"tool{number // 2}"},
        )
    if what == "net":
        return (
            "net.requested",
            {"domain": "a.example", "port": 443, "decision": dice.choice(("allowed", "denied"))},
            {},
        )
    if what == "exec":
        return "process.started", {"exec_id": number, "command": "ls"}, {}
    if what == "delta":
        return "model_call.delta", {"text": "some words", "index": number}, {}
    if what == "begin":
        return "session.started", {"agent": "a", "name": "n"}, {}
    if what == "stop":
        return "session.ended", {"status": "stopped"}, {}
    if what == "sparse":
        return "stream.declared", {"density": "sparse"}, {}
    if what == "dense":
        return "stream.declared", {"density": "dense", "first_seq": 0}, {}
    if what == "lost":
        return "stream.lost", {"from_seq": max(0, number - 3), "to_seq": number, "reason": "full"}, {}
    if what == "closed":
        return "stream.closed", {"last_seq": number + 2}, {}
    assert what == "odd"
    return "someone.else", {"deep": {"n": number, "list": [1, 2.5, None]}}, {}


_USUAL = ("said", "call", "tool", "result", "net", "said", "call", "exec", "user", "odd", "delta", "total")
_SELDOM = ("begin", "stop", "sparse", "dense", "lost", "closed")


def _session(dice: random.Random, tenant: str, session_id: str, events: int) -> list[dict[str, Any]]:
    """The events of one session, each stream in its order."""
    streams = STREAMS[: dice.choice((1, 1, 2, 3))]
    following = dict.fromkeys(streams, 0)
    clocks = dict.fromkeys(streams, NOON + dice.randrange(3_600_000_000))
    left_out = dice.choice((0.0, 0.0, 0.03, 0.15))
    unnumbered = dice.choice((0.0, 0.0, 0.2, 1.0)) if dice.random() < 0.5 else 0.0
    with_ids = dice.random() < 0.4
    turn, is_open = 0, False
    found: list[dict[str, Any]] = []
    for number in range(events):
        stream = dice.choice(streams)
        if dice.random() < left_out:
            following[stream] += dice.choice((1, 1, 3))
        if not is_open and dice.random() < 0.7:
            what, is_open, turn = "start", True, turn + 1
        elif is_open and dice.random() < 0.2:
            what, is_open = "end", False
        else:
            what = dice.choice(_SELDOM if dice.random() < 0.08 else _USUAL)
        # Clocks go on, stand, or jump to and fro: nothing but a label (contract 5).
        clocks[stream] += (
            dice.choice((1000, 1000, 250_000, 0))
            if dice.random() < 0.93
            else dice.randrange(-9, 9) * 600_000_000
        )
        type_, payload, names = _payload(what, number, dice)
        event: dict[str, Any] = {"session_id": session_id, "type": type_, **names}
        if tenant != "default":
            event["tenant"] = tenant
        event |= dict(zip(("producer", "epoch", "stream"), stream, strict=True))
        if dice.random() < unnumbered:
            event["receipt_key"] = f"r{number}"
        else:
            event["seq"] = following[stream]
            following[stream] += 1
        if dice.random() < 0.95:
            event["occurred_at"] = utc_text(clocks[stream])
        if with_ids:
            event["turn_id"] = f"T{turn}"
        event["payload"] = payload
        found.append(event)
    return found


def _contradicting(event: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """The same key with another content."""
    return {**event, "payload": {**event["payload"], "otherwise": dice.randrange(3)}}


def _rewritten(event: dict[str, Any]) -> bytes:
    """The same content in other bytes: keys in another order, with space between."""
    return orjson.dumps(dict(reversed(event.items())), option=orjson.OPT_INDENT_2)


_GARBAGE = (
    b"",
    b"no json at all",
    b'{"session_id":"s","seq":1}',
    b'{"seq":3,"type":"x","payload":{}}',
    b'[1,2,3]',
    b'{"session_id":"s0","type":"x","payload":{}}',
    b'{"session_id":"s0","seq":-4,"type":"x"}',
    None,
)  # fmt: skip


def generate(dice: random.Random, partitions: int, events: int) -> Traffic:
    """Traffic of about ``events`` events in ``partitions`` partitions."""
    lanes: list[list[Produced]] = [[] for _ in range(partitions)]
    counts = dict.fromkeys(
        ("events", "duplicates", "conflicts", "late", "gaps", "garbage", "two_partitions"), 0
    )
    sessions: list[tuple[str, str]] = []
    arrivals: list[tuple[float, int, Produced]] = []
    left = events
    while left > 0:
        size = min(left, dice.choice((2, 5, 12, 25)))
        left -= size
        tenant, session_id = dice.choice(TENANTS), f"s{len(sessions)}"
        if sessions and dice.random() < 0.1:
            session_id = sessions[-1][1]
            tenant = next(name for name in TENANTS if name != sessions[-1][0])
            if (tenant, session_id) in sessions:
                continue
        sessions.append((tenant, session_id))
        home = dice.randrange(partitions)
        other = dice.randrange(partitions) if dice.random() < 0.15 else home
        counts["two_partitions"] += other != home
        key = f"{tenant}/{session_id}".encode()
        begins, length = dice.random(), dice.choice((0.05, 0.3, 0.9))
        made = _session(dice, tenant, session_id, size)
        counts["events"] += len(made)
        late = dice.choice((0.0, 0.05, 0.2))
        again = dice.choice((0.0, 0.05, 0.25))
        contradicts = dice.choice((0.0, 0.0, 0.05, 0.15))
        for number, event in enumerate(made):
            at = begins + length * number / len(made)
            if dice.random() < late:
                at += dice.random() * 0.6
                counts["late"] += 1
            value = orjson.dumps(event)
            lane = home if other == home or dice.random() < 0.7 else other
            arrivals.append((at, lane, Produced(None if dice.random() < 0.01 else key, value)))
            if dice.random() < again:
                for _ in range(dice.choice((1, 1, 3))):
                    copy = value if dice.random() < 0.8 else _rewritten(event)
                    back = home if other == home or dice.random() < 0.5 else other
                    arrivals.append(
                        (at + dice.choice((0.0, 0.02, 0.5)) * dice.random(), back, Produced(key, copy))
                    )
                    counts["duplicates"] += 1
            if dice.random() < contradicts:
                for _ in range(dice.choice((1, 1, 2))):
                    value = orjson.dumps(_contradicting(event, dice))
                    arrivals.append(
                        (at + dice.choice((-0.01, 0.02, 0.5)) * dice.random(), lane, Produced(key, value))
                    )
                    counts["conflicts"] += 1
    if dice.random() < 0.4:
        for _ in range(dice.randrange(1, 6)):
            value = dice.choice(_GARBAGE)
            arrivals.append((dice.random() * 1.5, dice.randrange(partitions), Produced(b"default/s0", value)))
            counts["garbage"] += 1
    order = sorted(range(len(arrivals)), key=lambda index: (arrivals[index][0], index))
    for index in order:
        _, lane, produced = arrivals[index]
        lanes[lane].append(produced)
    return Traffic(lanes, sessions, counts)
