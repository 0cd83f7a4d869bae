"""`turnledger verify` beside live workers: what is on its way is never called a fault, and once it has arrived everything holds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.ingesting import environment, rows
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, produce
from turnledger.doctor.faults import Report
from turnledger.doctor.verify import verify
from turnledger.pricing import packaged, price_call

Start = Callable[..., Running]
WAVES = 14
LOOKS = 4


def wave(number: int) -> Iterator[Record]:
    """Every session goes on with its open turn, some end it; each wave brings a fork that holds a call of the wave before, a late event
    that fills a hole, a duplicate and a contradiction. Session ``wanders`` comes through both partitions."""
    for session in range(4):
        name = f"s{session}"
        first = number * 4
        turn = f"t{number // 3}"
        call = f"c{number}"
        yield of(
            name,
            first,
            "turn.started" if number % 3 == 0 else "message.recorded",
            turn,
            role="user",
            text="go on",
        )
        yield of(name, first + 2, "model_call.completed", turn, call, **completed(f"{name}-{number}"))
        yield of(name, first + 1, "model_call.started", turn, call, provider="anthropic")
        yield of(
            name,
            first + 3,
            "turn.completed" if number % 3 == 2 else "message.recorded",
            turn,
            role="assistant",
            text="on it",
        )
    fork = f"fork{number}"
    yield of(fork, 0, "session.forked", None, parent_session_id="s0", at_seq=number * 4)
    yield of(fork, 1, "model_call.completed", "t0", "c0", **completed(f"s0-{number - 1}"))
    yield of("wanders", number, "message.recorded", "t", partition=number % 2, role="user", text="here")
    yield of("s1", 0, "turn.started", "t0", role="user", text="go on")
    yield of("s1", 0, "turn.started", "t0", role="user", text=f"another word {number}")


def completed(message: str) -> dict[str, Any]:
    usage = {"input": 100, "output": 20, "cache_read": 50}
    return {"provider": "anthropic", "model": "claude-sonnet-4-5", "message_id": message, "usage": usage}


def of(
    session: str, seq: int, kind: str, turn: str | None, call: str | None = None, partition: int | None = None, **payload: Any
) -> Record:  # fmt: skip
    body = {
        "session_id": session,
        "seq": seq,
        "type": kind,
        "turn_id": turn,
        "model_call_id": call,
        "occurred_at": f"2026-03-01T12:{seq // 60:02d}:{seq % 60:02d}Z",
        "payload": payload,
    }
    return Record(json.dumps(body).encode(), f"default/{session}".encode(), partition)


@pytest.mark.partitions(2)
def test_verify_beside_live_workers_calls_nothing_a_fault(topic: Topic, database: str, start: Start) -> None:
    settings = environment(topic, database)
    worker = start("worker", environment=settings)
    rollup = start("rollup", "--health-port", "0", environment=settings)
    produced = threading.Event()

    def produce_all() -> None:
        try:
            for number in range(WAVES):
                produce(topic, wave(number))
        finally:
            produced.set()

    producer = threading.Thread(target=produce_all)
    producer.start()
    reports: list[Report] = []
    try:
        eventually(lambda: rows(database, "select 1 from ledger.sessions"), what="the first events are there")
        price = partial(price_call, packaged())
        while not produced.is_set() or len(reports) < LOOKS:
            reports.append(verify(database, price, settle_seconds=1.0))
            assert worker.running() and rollup.running(), worker.output() + rollup.output()
    finally:
        producer.join()
    assert [report.faults for report in reports if any(report.counts.values())] == []

    done = run("verify", "--settle", "60", "--topics", environment=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f", {WAVES * 21} records of Kafka" in done.stdout
