"""Live traffic beside a rebuild and a switch (a part of ``tests.bench.rebuild``, or alone: ``python -m tests.bench.beside``): how long a turn takes to be
visible without and with them, how long partitions stand still, and whether every event is told once.

Fleet, broker, worker, rollup worker, database and readers share the cores of one machine, so their capacity is measured as they are: the fleet
produces as fast as the worker takes, never more than ``AHEAD`` events before it. At a share of that rate sessions take turns. After a while of that alone
`replay projections` fills the other generation; once that is ready, `replay switch --group` shows it and hands all partitions to a worker that stands by. Three
readers look all the time, each their own way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import psycopg
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from tests.bench.generate import Record, records
from tests.bench.run import fill, fresh_database
from tests.bench.stack import stack
from tests.fault.test_rebuild_live import Readers, turn
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.migrate import migrate

COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]
WARM_SECONDS = 5.0
"""Before the first sample: caches, new sessions."""
CAPACITY_SECONDS = 20.0
AHEAD = 10_000
"""Events that may wait for the worker while its capacity is measured: some rounds."""
AFTER_SECONDS = 5.0
EVERY = 16
"""One of so many turns is waited for: who looks takes from what the others have."""
READ_SECONDS = 0.1
"""Between two looks of a reader."""
PREPARED = 3_000_000
"""Events that are made before anybody is measured; more are made when they are needed."""
OF_SESSIONS = 100_000
"""Events of the 200 sessions that go on side by side; then there are 200 others: a session has some 36 turns."""
MOST_AT_ONCE = 1000
TICK_SECONDS = 0.01
"""One batch a partition, as a fleet of many producers together."""
LAG_SECONDS = 120.0
LIMIT_SECONDS = 420.0
"""Of each of the two commands: a rebuild may follow what comes in more slowly than it comes."""
HELD_MS = 1000
"""Partitions that stand still longer are a fault."""

PLANTED = "update projection_b.turns set grade = %s where session_no = (select session_no from ledger.sessions where session_id = 'marked')"

WARM, ALONE, REBUILT, SWITCHED = "warm", "alone", "beside the rebuild", "around the switch"


@dataclass(slots=True)
class Beside:
    """What was seen. Times in ms."""

    workers: int
    share: float
    """Of the capacity, produced beside the rebuild."""
    rate: float = 0
    """Events/s that the rebuild may fold at most; 0 is without limit."""
    capacity: float = 0.0
    """Events/s of everything together, the rebuild left out."""
    there: int = 0
    """Events before the rebuild."""
    events: int = 0
    """Told while it went on."""
    ready: float | None = None
    """Seconds until the rebuild could be switched to; None: it was given up."""
    switched: float | None = None
    """Seconds of the switch; None: there was none."""
    differences: int = 0
    uncompared: int = 0
    tail_events: int = 0
    spread: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """(turns, p50, p99) from the end of a turn being produced to the turn being visible, by what went on beside it."""
    held_ms: int = 0
    handed_ms: list[float] = field(default_factory=list)
    """By partition: from the last round of the old group to the first of the other one."""
    lag_seconds: float = 0.0
    """From the last event to a lag of 0."""
    looks: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """p99 of all turns from the beginning of the rebuild on, over p99 without it."""
        return self.spread["with both"][2] / self.spread[ALONE][2]

    def lines(self) -> list[str]:
        """As Markdown."""
        each = [
            f"| {name} | {count:,} | {p50:.0f} | {p99:.0f} |"
            for name, (count, p50, p99) in self.spread.items()
        ]
        limit = f" and at most {self.rate:,.0f} events/s" if self.rate else ""
        ready = "given up" if self.ready is None else f"ready after {self.ready:.0f} s"
        lines = [
            f"Fleet, broker, one worker, one rollup worker, database and readers together carry {self.capacity:,.0f} events/s on this machine. At "
            f"{self.share} of that, beside it: a rebuild of {self.there:,} events with {self.workers} processes{limit}, {ready}, while {self.events:,} more "
            "events came in.",
            "",
            "| a turn's end to its row | turns | p50 ms | p99 ms |",
            "|---|---|---|---|",
            *each,
            "",
        ]
        if self.switched is not None:
            lines.append(
                f"The switch took {self.switched:.0f} s: {self.differences} sessions differ, {self.uncompared} moved in that very moment. Partitions stood "
                f"still for {self.held_ms} ms, {self.tail_events} events were folded meanwhile; each was handed to the other group, without a rebalance, "
                f"within {', '.join(f'{ms:.0f}' for ms in self.handed_ms)} ms (from last round to first round)."
            )
        lines.append(
            f"p99 grew {self.growth:.2f} times. Lag was 0 again {self.lag_seconds:.1f} s after the last event. Readers looked {self.looks:,} times. "
            f"Faults: {'; '.join(self.faults) or 'none'}."
        )
        return lines


def endless() -> Iterator[Record]:
    """What a fleet says, for ever."""
    return chain.from_iterable(
        records("backlog", OF_SESSIONS, seed=1000 + number, prefix="beside") for number in count()
    )


@dataclass
class Fleet:
    """Sessions that take turns at a steady rate, and what is seen of them. Runs a loop in a thread of its own."""

    bootstrap: str
    topic: str
    dsn: str
    rate: float = 0.0
    """Events a second; 0 is as many as are taken."""
    phase: str = WARM
    sent: int = 0
    applied: int = 0
    turns: int = 0
    samples: dict[str, list[float]] = field(default_factory=dict)
    waiting: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    load: Iterator[Record] = field(default_factory=endless)
    _end: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.load = chain(list(islice(self.load, PREPARED)), self.load)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Until the block ends; then until everything that was waited for was seen."""
        threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (lambda: asyncio.run(self._produce()), self._watch)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._end.set()
            threads[0].join()
            until = time.monotonic() + LAG_SECONDS
            while self.waiting and time.monotonic() < until and not self.failed:
                time.sleep(0.05)
            self._done.set()
            threads[1].join()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.failed.append(repr(error))

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, compression_type="lz4", max_batch_size=1 << 20
        )  # fmt: skip
        await producer.start()
        try:
            partitions = sorted(await producer.partitions_for(self.topic))
            partitioner, places = DefaultPartitioner(), dict[bytes, int]()
            began, first, rate = time.perf_counter(), self.sent, 0.0
            while not self._end.is_set():
                if rate != self.rate:
                    began, first, rate = time.perf_counter(), self.sent, self.rate
                due = first + int((time.perf_counter() - began) * rate) if rate else self.applied + AHEAD
                batches = {}
                for record in islice(self.load, min(MOST_AT_ONCE, max(0, due - self.sent))):
                    partition = places.get(record.key, -1)
                    if partition < 0:
                        # It hashes byte by byte in Python: the fleet is not to take what the others are measured by.
                        partition = places[record.key] = partitioner(record.key, partitions, partitions)
                    batch = batches.get(partition)
                    if batch is None:
                        batch = batches[partition] = producer.create_batch()
                    assert batch.append(key=record.key, value=record.value, timestamp=None) is not None
                    self.sent += 1
                    if record.ends_turn is not None:
                        self.turns += 1
                        if self.turns % EVERY == 0 and self.phase != WARM:
                            with self._lock:
                                self.waiting[record.ends_turn] = (time.perf_counter(), self.phase)
                await asyncio.gather(
                    *[await producer.send_batch(batch, self.topic, partition=partition) for partition, batch in batches.items()]
                )  # fmt: skip
                await asyncio.sleep(TICK_SECONDS)
        finally:
            await producer.stop()

    def _watch(self) -> None:
        ask = (
            "select s.session_id, t.turn_id from unnest(%s::text[], %s::text[]) as w(session_id, turn_id)"
            " join ledger.sessions s on s.tenant = 'acme' and s.session_id = w.session_id"
            " join projection_{}.turns t on t.session_no = s.session_no and t.turn_id = w.turn_id where t.status <> 'open'"
        )
        with psycopg.connect(self.dsn, autocommit=True) as link:
            while not self._done.is_set():
                self.applied = applied(link)
                with self._lock:
                    names = list(self.waiting)[:300]
                if names:
                    row = link.execute("select generation from turnledger.active").fetchone()
                    assert row is not None
                    columns = ([name for name, _ in names], [name for _, name in names])
                    found = link.execute(ask.format(row[0]).encode(), columns).fetchall()
                    now = time.perf_counter()
                    with self._lock:
                        for name in found:
                            at, phase = self.waiting.pop(name)
                            self.samples.setdefault(phase, []).append((now - at) * 1e3)
                time.sleep(0.02)


def applied(link: psycopg.Connection[Any]) -> int:
    """Records of the topic that are behind the worker."""
    row = link.execute("select coalesce(sum(next_offset), 0)::int8 from ledger.ingest_progress").fetchone()
    assert row is not None
    return int(row[0])


def spread(values: list[float]) -> tuple[int, float, float]:
    cuts = statistics.quantiles(values, n=100)
    return len(values), cuts[49], cuts[98]


def _start(environment: dict[str, str], *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    log = Path(tempfile.mkstemp(prefix="turnledger-bench-", suffix=".log")[1])
    with log.open("wb") as out:
        return subprocess.Popen(
            [*COMMAND, *arguments], env=environment, stdout=out, stderr=out, start_new_session=True
        ), log


def _asked(
    environment: dict[str, str], limit: float, *arguments: str
) -> tuple[float, subprocess.CompletedProcess[str]]:
    """A command, to its end or to the limit, and its seconds."""
    command, began = [*COMMAND, *arguments], time.perf_counter()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, 1, "", f"not done after {limit:.0f} s")
    return time.perf_counter() - began, done


def _until(what: str, true: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not come to be")
        time.sleep(0.02)


async def _send(bootstrap: str, topic: str, sent: list[Any]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for record in sent:
        await producer.send(topic, record.value, key=record.key)
    await producer.flush()
    await producer.stop()


def beside(
    bootstrap: str,
    topic: str,
    dsn: str,
    there: int,
    share: float,
    alone_seconds: float,
    workers: int,
    limit: float = LIMIT_SECONDS,
    rate: float = 0,
) -> Beside:
    """``share`` of what everything together carries is produced. ``there``: records of the topic that are applied already. ``dsn``: their database,
    whose other generation is empty.
    """
    environment = os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap, "TURNLEDGER_DATABASE_URL": dsn, "TURNLEDGER_TOPIC": topic,
        "TURNLEDGER_ROUND_EVENTS": "5000",
    }  # fmt: skip
    marked = [record for n in range(8) for record in turn("marked", n)]
    fleet = Fleet(bootstrap, topic, dsn, sent=there + len(marked))
    found = Beside(workers, share, rate)
    with ExitStack() as at_end, psycopg.connect(dsn, autocommit=True) as link:

        def ended(process: subprocess.Popen[bytes]) -> None:
            process.terminate()
            process.wait(timeout=60)

        asyncio.run(_send(bootstrap, topic, marked))
        old, _ = _start(environment, "worker", "--health-port", "0")
        at_end.callback(ended, old)
        # Whoever is not rolled up where readers look is never compared.
        sums, _ = _start(environment, "rollup", "--health-port", "0")
        at_end.callback(ended, sums)
        _until("the first turns", lambda: applied(link) >= fleet.sent)
        other = f"bench-other-{time.time_ns()}"
        new, log = _start(environment, "worker", "--health-port", "0", "--standby", "--group", other)
        at_end.callback(ended, new)
        _until("the other group", lambda: "health at" in log.read_text() or "joined" in log.read_text())
        seen = "select count(*) from turnledger.turns where session_id = 'marked' and status <> 'open'"
        _until("the marked session", lambda: link.execute(seen).fetchone() == (8,))
        readers = Readers(dsn, pause=READ_SECONDS)
        with fleet.going_on():
            readers.start()
            time.sleep(WARM_SECONDS)
            began, before = time.perf_counter(), applied(link)
            time.sleep(CAPACITY_SECONDS)
            found.capacity = (applied(link) - before) / (time.perf_counter() - began)
            fleet.rate = found.capacity * share
            time.sleep(WARM_SECONDS)
            fleet.phase = ALONE
            time.sleep(alone_seconds)
            fleet.phase = REBUILT
            found.there = fleet.sent
            asked = partial(_asked, environment, limit)
            seconds, made = asked(
                "replay", "projections", "--workers", str(workers), "--rate", str(rate), "--json"
            )
            fleet.phase = SWITCHED
            if made.returncode:
                found.faults.append(f"replay projections: {made.stdout} {made.stderr}")
            else:
                found.ready = seconds
                # What nobody writes any more tells the two generations apart.
                link.execute(PLANTED, ("planted",))
                seconds, done = asked(
                    "replay", "switch", "--workers", str(workers), "--group", other, "--json"
                )
                if done.returncode:
                    found.faults.append(f"replay switch: {done.stdout} {done.stderr}")
                else:
                    found.switched, said = seconds, json.loads(done.stdout)
                    found.differences, found.uncompared = said["differences"], said["uncompared"]
                    found.tail_events, found.held_ms = said["tail_events"], said["held_ms"]
            time.sleep(AFTER_SECONDS)
        ended_at = time.perf_counter()
        readers.stop()
        link.execute(PLANTED, ("complete",))
        _until("a lag of 0", lambda: applied(link) >= fleet.sent, LAG_SECONDS)
        found.lag_seconds = time.perf_counter() - ended_at
        found.events = fleet.sent - found.there
        if found.switched is not None:
            found.handed_ms = _handed(link, topic)
            if max([found.held_ms, *found.handed_ms]) > HELD_MS:
                found.faults.append(f"partitions stood still for more than {HELD_MS} ms")
        if any(one.poll() is not None for one in (old, sums, new)):
            found.faults.append("a worker ended")
        for name in (ALONE, REBUILT, SWITCHED):
            if len(fleet.samples.get(name, [])) > 1:
                found.spread[name] = spread(fleet.samples[name])
        found.spread["with both"] = spread(fleet.samples.get(REBUILT, []) + fleet.samples.get(SWITCHED, []))
        found.looks = readers.looks
        found.faults += [*readers.faults, *fleet.failed, *_counted(link, fleet, topic)]
    return found


def _handed(link: psycopg.Connection[Any], topic: str) -> list[float]:
    """ms from the last round of the epoch before to the first of the last one, by partition."""
    return [
        float(row[0])
        for row in link.execute(
            "select extract(epoch from min(b.committed_at) filter (where b.epoch >= p.owner_epoch) - max(b.committed_at) "
            "filter (where b.epoch < p.owner_epoch)) * 1000 from ledger.ingest_batches b join ledger.ingest_progress p using (topic, partition) "
            "where b.topic = %s group by b.partition order by b.partition",
            (topic,),
        )
        if row[0] is not None
    ]


def _counted(link: psycopg.Connection[Any], fleet: Fleet, topic: str) -> list[str]:
    """What is not told exactly once."""
    row = link.execute(
        "select sum(records), sum(accepted), (select count(*) from ledger.events), sum(holes) from ledger.ingest_batches where topic = %s",
        (topic,),
    ).fetchone()
    assert row is not None
    found = (
        []
        if {int(one) for one in row[:3]} == {fleet.sent} and not row[3]
        else [f"{fleet.sent} were sent; read, accepted, stored, holes: {row}"]
    )
    if fleet.waiting:
        found.append(f"{len(fleet.waiting)} turns were never seen")
    row = link.execute(
        "select count(*), count(distinct (session_id, turn_key)) from turnledger.turns where session_id like 'beside%%' and status = 'completed'"
    ).fetchone()
    assert row is not None
    if row != (fleet.turns, fleet.turns):
        found.append(f"{fleet.turns} turns ended; told, different ones: {row}")
    return found


def main() -> None:
    """Fill, drain, sum, then measure. Exit status 1 where something was lost, told twice or refused."""
    from tests.bench.rebuild import PARTITIONS, drain, say

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=300_000, help="that are there before")
    arguments.add_argument("--share", type=float, default=0.5, help="of the capacity, produced beside it")
    arguments.add_argument("--seconds", type=float, default=20, help="of live traffic without the rebuild")
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds of each command")
    arguments.add_argument("--rate", type=float, default=0, help="events/s of the rebuild at most")
    asked = arguments.parse_args()
    topic = f"bench-beside-{time.time_ns()}"
    with stack() as there:
        bootstrap, dsn = there.kafka_bootstrap, fresh_database(there.database_url, "bench_beside")
        migrate(dsn)
        total = asyncio.run(fill(bootstrap, topic, PARTITIONS, records("backlog", asked.events)))
        drain(bootstrap, topic, dsn, total, 1)
        Rollup(RollupSettings(), dsn, PriceBook()).drain()
        say(f"{total} records are applied and summed")
        found = beside(
            bootstrap, topic, dsn, total, asked.share, asked.seconds, asked.workers, asked.limit, asked.rate
        )
    say("\n".join(found.lines()))
    if found.faults:
        sys.exit(1)


if __name__ == "__main__":
    main()
