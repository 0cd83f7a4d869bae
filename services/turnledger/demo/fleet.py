"""A small fleet, as a pure function: seed, start and length in, the records that its harnesses publish out, with the faults named.

The same arguments give the same bytes. Every fault that is put in is counted here, so that what the ledger shows can be held against
what was sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from turnledger.demo.scripts import SCRIPTS
from turnledger.demo.vm import Vm

Kind = Literal["event", "late", "duplicate", "conflict", "garbage"]

SHORTEST = 10.0
"""Seconds. A shorter fleet has no room for the fault that fills late."""
DUPLICATE_SHARE = 0.03
DUPLICATE_BURST = 40
"""A harness that lost an acknowledgement sends its last batch again, this many records."""
LOST = 3
"""Events that never come: one open gap."""
LATE = 6
"""Events that come after others of their stream: a gap that fills."""
GARBAGE = b'{"session_id":"%s","seq":12,"type":"tool_call.compl'


@dataclass(frozen=True)
class Delivery:
    """One record on its way: ``after`` seconds from the start, the Kafka key, the value, and why it is sent."""

    after: float
    key: bytes
    value: bytes
    kind: Kind

    @property
    def envelope(self) -> dict[str, Any]:
        """The event as an object. Garbage has none: a ``ValueError``."""
        envelope: dict[str, Any] = orjson.loads(self.value)
        return envelope


@dataclass(frozen=True)
class Hole:
    """Numbers of one stream, both ends included."""

    session_id: str
    stream: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True)
class Fleet:
    """Everything that is sent, by time, and what the ledger has to say about it."""

    deliveries: list[Delivery]
    sessions: list[str]
    open_gap: Hole
    late_gap: Hole
    conflict: tuple[str, str, int]
    """(session, stream, seq) that is told in two ways."""
    counts: dict[Kind, int] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        """Distinct events."""
        return self.counts["event"] + self.counts["late"]

    @property
    def records(self) -> int:
        """Records on the topic."""
        return len(self.deliveries)


def work(
    *, seed: int = 7, vms: int = 8, seconds: float = 60.0, start: datetime | None = None, run: str = "demo"
) -> list[Delivery]:
    """What ``vms`` sessions named ``<run>-vm-NN`` do for ``seconds`` from ``start`` (with a time zone), without a fault, by time."""
    begin = start or datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    done: list[Delivery] = []
    for number in range(vms):
        # A generator of its own for each VM: one more VM changes nothing about the others.
        vm = Vm(_session(run, number), random.Random(f"{seed}/{number}"), begin, seconds)
        SCRIPTS[number % len(SCRIPTS)](vm)
        done += [
            Delivery(after, _key(vm.session_id), orjson.dumps(event), "event") for after, event in vm.events
        ]
    return sorted(done, key=lambda delivery: delivery.after)


def fleet(
    *, seed: int = 7, vms: int = 8, seconds: float = 60.0, start: datetime | None = None, run: str = "demo"
) -> Fleet:
    """The records of :func:`work` with the faults in them.

    At least five VMs and :data:`SHORTEST` seconds: the faults stand in different sessions.
    """
    if vms < 5 or seconds < SHORTEST:
        raise ValueError(f"a fleet has at least 5 VMs and {SHORTEST:.0f} s, not {vms} and {seconds:.0f}")
    sent = work(seed=seed, vms=vms, seconds=seconds, start=start, run=run)
    sessions = [_session(run, number) for number in range(vms)]
    first, second, third, fourth, fifth = sessions[:5]

    rng = random.Random(f"{seed}/faults")
    at = _Finder(sent)
    # A spool that was lost with its disk, and one that came late: in the middle of two sessions' recorder streams.
    lost = at.run(fifth, "recorder", LOST, 0.45 * seconds)
    late = at.run(third, "recorder", LATE, 0.3 * seconds)
    told = at.one(second, "ledger", "tool_call.completed", 0.4 * seconds)
    gone, delayed = set(lost), set(late)
    sent = [delivery for delivery in sent if delivery not in gone]
    back = 0.75 * seconds
    sent = [
        Delivery(back, delivery.key, delivery.value, "late") if delivery in delayed else delivery
        for delivery in sent
    ]

    other = told.envelope
    other["payload"] = other["payload"] | {
        "status": "error",
        "error_message": "the restored VM tells it in another way",
    }
    extra = [Delivery(min(told.after + 4, seconds), told.key, orjson.dumps(other), "conflict")]
    extra.append(
        Delivery(
            0.5 * seconds,
            _key(fourth),
            GARBAGE % fourth.encode(),
            "garbage",
        )
    )
    for delivery in sent:
        if delivery.kind == "event" and rng.random() < DUPLICATE_SHARE:
            after = min(delivery.after + rng.uniform(0.1, 5), seconds)
            extra.append(Delivery(after, delivery.key, delivery.value, "duplicate"))
    burst_key = _key(first)
    before = [d for d in sent if d.key == burst_key and d.kind == "event" and d.after < 0.6 * seconds]
    extra += [Delivery(0.6 * seconds, d.key, d.value, "duplicate") for d in before[-DUPLICATE_BURST:]]

    deliveries = sorted([*sent, *extra], key=lambda delivery: delivery.after)
    counts: dict[Kind, int] = {"event": 0, "late": 0, "duplicate": 0, "conflict": 0, "garbage": 0}
    for delivery in deliveries:
        counts[delivery.kind] += 1
    return Fleet(
        deliveries,
        sessions,
        open_gap=_hole(lost),
        late_gap=_hole(late),
        conflict=(other["session_id"], "ledger", other["seq"]),
        counts=counts,
    )


def _session(run: str, number: int) -> str:
    return f"{run}-vm-{number + 1:02d}"


def _key(session_id: str) -> bytes:
    return f"default/{session_id}".encode()


class _Finder:
    """Places in what is sent where a fault can stand."""

    def __init__(self, sent: list[Delivery]) -> None:
        self._sent = sent

    def run(self, session: str, stream: str, length: int, after: float) -> list[Delivery]:
        """``length`` consecutive events of the stream from ``after`` seconds on, with at least one behind them."""
        found = self._of(session, lambda event: event.get("stream", "ledger") == stream)
        first = next(number for number, delivery in enumerate(found) if delivery.after >= after)
        first = min(first, len(found) - length - 1)
        return found[first : first + length]

    def one(self, session: str, stream: str, kind: str, after: float) -> Delivery:
        """An event of that type, the first from ``after`` seconds on, else the last."""
        found = self._of(
            session, lambda event: event.get("stream", "ledger") == stream and event["type"] == kind
        )
        return next((delivery for delivery in found if delivery.after >= after), found[-1])

    def _of(self, session: str, wanted: Callable[[dict[str, Any]], bool]) -> list[Delivery]:
        key = _key(session)
        return [delivery for delivery in self._sent if delivery.key == key and wanted(delivery.envelope)]


def _hole(missing: list[Delivery]) -> Hole:
    first, last = missing[0].envelope, missing[-1].envelope
    return Hole(first["session_id"], first.get("stream", "ledger"), first["seq"], last["seq"])
