"""`python -m tests.bench.publisher [--events N] [--result FILE]`: what an ``emit`` costs and how many events a second go through the spool,
beside plain aiokafka with the same records, on a broker of the run's own.

Every way sends the same events of one session: `emit` is timed one by one in one thread, then the flush. The parts of an `emit` are timed alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.bench.stack import stack
from tests.stack.topics import Topic, create_topic
from turnledger.harness import AsyncLedger, Ledger
from turnledger.harness.kafka import Sink, producing, send
from turnledger.harness.numbering import Numbering

PAYLOAD = {
    "provider": "anthropic",
    "model": "claude-sonnet-4-5",
    "stop_reason": "tool_use",
    "usage": {"input": 1200, "cache_read": 9000, "output": 310},
    "text": "the quick brown fox jumps over the lazy dog; " * 8,
}
LONG = 200_000
"""Bytes of a text that is moved out of its event."""
LONG_PAYLOAD = {**PAYLOAD, "text": ("the quick brown fox jumps over the lazy dog; " * 5000)[:LONG]}
LONG_SHARE = 40
"""One event with such a text for so many of the others."""
ABOUT = {"turn_id": "turn-17", "model_call_id": "call-3"}
KIND = "model_call.completed"
FIXED = {
    "schema_version": 1,
    "tenant": "default",
    "session_id": "s",
    "producer": "harness",
    "epoch": 1,
    "stream": "ledger",
}


@dataclass
class Timed:
    """One way of sending. Seconds."""

    each: list[float]
    flush: float

    def row(self, name: str) -> str:
        """A row of the table."""
        emitting = sum(self.each)
        us = sorted(1e6 * one for one in self.each)
        p50, p99 = statistics.median(us), us[int(0.99 * len(us))]
        rate = len(us) / (emitting + self.flush)
        return f"| {name} | {1e6 * emitting / len(us):.0f} | {p50:.0f} | {p99:.0f} | {us[-1] / 1000:.1f} | {rate:,.0f} |"


def timed(events: int, emit: Callable[[int], object], flush: Callable[[], object]) -> Timed:
    each = []
    for n in range(events):
        began = time.perf_counter()
        emit(n)
        each.append(time.perf_counter() - began)
    began = time.perf_counter()
    flush()
    return Timed(each, time.perf_counter() - began)


def through_a_ledger(
    events: int,
    sink: str,
    spool: Path | None,
    *,
    flush: bool = True,
    payload: dict[str, Any] = PAYLOAD,
    bodies: bool = False,
) -> Timed:
    ledger = Ledger(
        session_id="s",
        sink=sink,
        spool=spool,
        spool_bytes=10**9 if spool else None,
        bodies=bodies,
        body_bytes=LONG if bodies else None,
    )
    ledger.emit(KIND, payload, **ABOUT)
    try:
        return timed(
            events,
            lambda n: ledger.emit(KIND, payload, **ABOUT),
            (lambda: ledger.flush(120)) if flush else (lambda: None),
        )
    finally:
        ledger.close(seconds=0)


async def through_an_async_ledger(events: int, sink: str, spool: Path) -> Timed:
    async with AsyncLedger(session_id="s", sink=sink, spool=spool) as ledger:
        each = []
        for _ in range(events):
            began = time.perf_counter()
            await ledger.emit(KIND, PAYLOAD, **ABOUT)
            each.append(time.perf_counter() - began)
        began = time.perf_counter()
        await ledger.flush(120)
        return Timed(each, time.perf_counter() - began)


async def through_aiokafka(events: int, topic: Topic) -> Timed:
    """The same envelopes, made by hand: a dict and its JSON; no check, no redaction, nothing on disk."""
    sink = Sink(topic.bootstrap, topic.name)
    async with producing(sink) as producer:
        each = []
        for n in range(events):
            began = time.perf_counter()
            record = orjson.dumps({**FIXED, "seq": n, "type": KIND, "payload": PAYLOAD, **ABOUT})
            await send(producer, sink, b"default/s", record)
            each.append(time.perf_counter() - began)
        began = time.perf_counter()
        await producer.flush()
        return Timed(each, time.perf_counter() - began)


def alone(events: int, work: Callable[[int], Any]) -> float:
    """µs of one call, the least of three rounds."""
    best = 1e9
    for _ in range(3):
        began = time.perf_counter()
        for n in range(events):
            work(n)
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / events


REPORT = """# What publishing costs, {day}

`python -m tests.bench.publisher --events {events}`: {cores} cores, {machine}, Python {python}; Kafka on the same machine;
one session, one thread, events of {bytes} bytes as they leave.

| | µs an `emit`, mean | median | 99th of 100 | longest, ms | events/s, all of it |
|---|---|---|---|---|---|
{rows}

"All of it" counts from the first `emit` to the moment when the broker has everything. With a spool the sender works beside
the emitting thread, in the same process, and takes part of its time. Of an `emit` with a spool, {numbering:.0f} µs make the
record (the envelope, redaction, the check against the contract) and {spool:.0f} µs are the rest: the transaction in SQLite,
its WAL taken back into the file every 2 MiB, waking the sender. A text over 64 KiB is moved into `body.recorded` events, in the
same transaction as its event: of {long} events each.
"""


def main() -> int:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.publisher")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--result", type=Path)
    given = parser.parse_args()
    events = given.events
    rows = []
    with stack() as there, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def fresh() -> Topic:
            return create_topic(there.kafka_bootstrap, 1)

        def sink() -> str:
            topic = fresh()
            return f"kafka://{topic.bootstrap}/{topic.name}"

        asyncio.run(through_aiokafka(1000, fresh()))  # the broker's own first steps
        rows.append(asyncio.run(through_aiokafka(events, fresh())).row("plain aiokafka"))
        rows.append(through_a_ledger(events, sink(), None).row("`Ledger` without a spool"))
        rows.append(through_a_ledger(events, sink(), folder / "kafka").row("`Ledger`, spool, Kafka"))
        rows.append(
            asyncio.run(through_an_async_ledger(events, sink(), folder / "async")).row(
                "`AsyncLedger`, spool, Kafka"
            )
        )
        rows.append(
            through_a_ledger(events, f"file:{folder}/events", folder / "file").row("`Ledger`, spool, file")
        )
        for name, bodies in (("its size and hash leave", False), ("all of it leaves", True)):
            long = through_a_ledger(
                max(events // LONG_SHARE, 10),
                sink(),
                folder / f"long-{bodies}",
                payload=LONG_PAYLOAD,
                bodies=bodies,
            )
            rows.append(long.row(f"`Ledger`, spool, Kafka, a text of 200 KB in each: {name}"))
        away = through_a_ledger(events, "kafka://127.0.0.1:9", folder / "away", flush=False)
        rows.append(away.row("`Ledger`, spool, the broker away (into the spool alone)"))
    numbering = Numbering("s")
    _, (record,) = numbering.event(KIND, PAYLOAD, ABOUT)
    making = alone(events // 4, lambda n: numbering.records(n, KIND, PAYLOAD, ABOUT))
    report = REPORT.format(
        day=time.strftime("%Y-%m-%d"), events=events, cores=os.cpu_count(), machine=platform.machine(), python=platform.python_version(),
        bytes=len(record), long=max(events // LONG_SHARE, 10), rows="\n".join(rows), numbering=making, spool=1e6 * sum(away.each) / len(away.each) - making,
    )  # fmt: skip
    print(report)
    if given.result is not None:
        given.result.write_text(report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
