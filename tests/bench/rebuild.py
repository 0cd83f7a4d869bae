"""``python -m tests.bench.rebuild``: how fast projections are rebuilt, beside how fast the worker made them, in one run, and in how much memory.

Fills a topic, lets one worker (``--live-processes`` for more) drain it (the live rate), sums it, then rebuilds with as many processes as cores: folding,
roll-ups, comparison. Both do the same fold; the rebuild reads no Kafka, dedupes nothing and stores no event. Absolute figures belong to the
machine; the ratio of the two rates is what counts (aim: at least 2). Then, each left out with 0: the same with many short sessions (``--fanout-events``),
one long session of each of two lengths (``--long``), and live traffic at half (``--share``) of what everything together carries beside a rebuild and a switch
that hands all partitions to another group (``--beside-seconds`` of it without the rebuild first).

Exit status 1 where the rebuilt generation is not the live one, or where an event beside the rebuild was lost, told twice or seen in a mixture.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.bench.beside import Beside, beside
from tests.bench.generate import Record, records
from tests.bench.run import fill, fresh_database
from tests.bench.stack import stack
from tests.bench.verify import long_session
from turnledger.replay.compare import diff, in_doubt
from turnledger.replay.drop import drop
from turnledger.replay.hands import Processes
from turnledger.replay.rebuild import Progress, Rebuilder, begin, open_connection
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.migrate import migrate

RESULTS = Path(__file__).parent / "results" / "rebuild.md"
COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]
PARTITIONS = 4


@dataclass(slots=True)
class Measured:
    """One shape. Seconds from the first to the last event of the worker; from the beginning of the rebuild to the end of each phase."""

    shape: str
    events: int
    sessions: int
    live: float
    live_cpu: float
    """Seconds of the worker and of its database processes."""
    folded: float = 0.0
    folded_cpu: float = 0.0
    summed: float = 0.0
    ready: float = 0.0
    differences: int = 0
    same: bool = False
    """One digest over all turns of both generations."""
    fold_peak: float = 0.0
    """MiB of the largest process of the rebuild until all is folded."""
    peak: float = 0.0

    @property
    def ratio(self) -> float:
        """Rate of the fold over the worker's."""
        return self.live / self.folded

    @property
    def holds(self) -> bool:
        return self.same and not self.differences


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def cpu(pids: Iterable[int]) -> float:
    """Seconds that these processes have used; those that are gone count nothing."""
    total = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def backends(link: psycopg.Connection[Any], application: str) -> list[int]:
    """Database processes of our connections of this name."""
    found = link.execute(
        "select pid from pg_stat_activity where datname = current_database() and application_name like %s",
        (f"turnledger {application}%",),
    )
    return [row[0] for row in found]


@contextmanager
def running(
    bootstrap: str, topic: str, dsn: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A worker command, and its log."""
    environment = os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap,
        "TURNLEDGER_DATABASE_URL": dsn,
        "TURNLEDGER_TOPIC": topic,
        # As `make bench` measures a backlog.
        "TURNLEDGER_ROUND_EVENTS": "5000",
    }
    log = Path(tempfile.mkstemp(prefix="turnledger-bench-", suffix=".log")[1])
    with log.open("wb") as out:
        command = [*COMMAND, "worker", "--health-port", "0", *arguments]
        worker = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield worker, log
    finally:
        worker.terminate()
        worker.wait(timeout=60)


UNFLUSHED = (
    "select coalesce(sum(next_offset), 0)::int8, coalesce(bool_or(flushed_batch < (select max(batch_no) from ledger.ingest_batches b "
    "where b.topic = p.topic and b.partition = p.partition)), true) from ledger.ingest_progress p"
)


def drain(bootstrap: str, topic: str, dsn: str, total: int, processes: int) -> tuple[float, float]:
    """Seconds of a worker over everything that waits, from the first event applied to the last, and seconds of processors."""
    began = seconds = first_cpu = used = 0.0
    first = 0
    with (
        running(bootstrap, topic, dsn, "--processes", str(processes)) as (worker, log),
        psycopg.connect(dsn, autocommit=True) as link,
    ):
        family: list[int] = []
        while True:
            row = link.execute(UNFLUSHED).fetchone()
            assert row is not None
            if not began and row[0] > 0:
                began, first = time.perf_counter(), row[0]
                process = psutil.Process(worker.pid)
                family = [
                    worker.pid,
                    *(child.pid for child in process.children(recursive=True)),
                    *backends(link, "ingest"),
                ]
                first_cpu = cpu(family)
            if row[0] >= total and not seconds:
                seconds = time.perf_counter() - began
                used = cpu(family) - first_cpu
            if seconds and not row[1]:
                break
            if worker.poll() is not None:
                raise RuntimeError(f"the worker ended:\n{log.read_text()[-4000:]}")
            time.sleep(0.05)
    share = total / max(1, total - first)
    return seconds * share, used * share


def rebuild(dsn: str, found: Measured, workers: int) -> None:
    """Until it could be switched to; then it is given up."""
    with open_connection(dsn) as connection, psycopg.connect(dsn, autocommit=True) as link:
        began = time.perf_counter()
        there = begin(connection, by="bench")
        end = threading.Event()
        pids: list[int] = []

        def told(progress: Progress) -> None:
            now = time.perf_counter() - began
            if progress.phase == "folding" and not found.folded and progress.pieces_done == progress.pieces:
                found.folded = now
                found.fold_peak = found.peak
                found.folded_cpu = cpu([*pids, *backends(link, "replay projector")])
            if progress.phase == "following" and not found.summed and not progress.marks:
                found.summed = now

        def watch() -> None:
            while not end.wait(0.1):
                for pid in pids:
                    try:
                        used = psutil.Process(pid).memory_info().rss / 2**20
                    except psutil.NoSuchProcess:
                        continue
                    found.peak = max(found.peak, used)

        with Processes(workers, dsn, there) as hands:
            pids += hands.pids
            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                Rebuilder(connection, there, hands, told).run()
            finally:
                end.set()
                watcher.join()
        found.ready = time.perf_counter() - began
        found.differences = len(diff(connection).sessions) + in_doubt(connection)
        found.same = digest(link, there.live) == digest(link, there.slot)
        drop(connection, 60)


def digest(link: psycopg.Connection[Any], slot: str) -> bytes:
    """One over the digests of all turns of a generation."""
    found = sha256()
    with link.transaction(), link.cursor("turns") as cursor:
        cursor.itersize = 5000
        cursor.execute(f"select session_no, turn_key, digest from {slot}.turns order by 1, 2".encode())
        for row in cursor:
            found.update(repr(row).encode())
    return found.digest()


def measure(
    addresses: Any, shape: str, load: Iterable[Record], asked: argparse.Namespace, workers: int
) -> tuple[Measured, str, str]:
    """One shape, its topic and its database."""
    topic = f"bench-rebuild-{time.time_ns()}"
    dsn = fresh_database(addresses.database_url, f"bench_rebuild_{shape.replace(' ', '_')}")
    migrate(dsn)
    total = asyncio.run(fill(addresses.kafka_bootstrap, topic, PARTITIONS, load))
    say(f"{shape}: {total} records are in Kafka")
    live, live_cpu = drain(addresses.kafka_bootstrap, topic, dsn, total, asked.live_processes)
    say(f"{shape}: live {total / live:,.0f}/s; now its roll-ups")
    Rollup(RollupSettings(), dsn, PriceBook()).drain()
    with psycopg.connect(dsn) as link:
        row = link.execute("select count(*) from ledger.sessions").fetchone()
    found = Measured(shape, total, row[0] if row is not None else 0, live, live_cpu)
    rebuild(dsn, found, workers)
    say(
        f"{shape}: fold {total / found.folded:,.0f}/s ({found.ratio:.2f} times live; processors: "
        f"{found.live_cpu / total * 1e6:.1f} µs an event live, {found.folded_cpu / total * 1e6:.1f} rebuilt), ready after {found.ready:.0f} s, "
        f"{found.differences} differ, {'one digest' if found.same else 'TWO DIGESTS'}, peak {found.fold_peak:.0f} MiB, then {found.peak:.0f}"
    )
    return found, topic, dsn


def report(rows: list[Measured], long: list[Measured], live: Beside | None, asked: argparse.Namespace) -> str:
    lines = [
        f"# Rebuild, {time.strftime('%Y-%m-%d')}",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; `python -m tests.bench.rebuild`. Live: one worker command with "
        f"{asked.live_processes} process(es), backlog. Rebuild: {asked.workers} processes, their start included. CPU: of the processes and of theirs in "
        "the database. Peak: of the largest process of the rebuild, until all is folded, and with roll-ups and comparison.",
        "",
        "| shape | sessions | events | live µs/event | fold µs | fold / live (rates) | live CPU µs | fold CPU µs | with roll-ups µs | ready µs | differ "
        "| one digest | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in [*rows, *long]:
        figures = [one.live, one.folded]
        each = " | ".join(f"{seconds / one.events * 1e6:.1f}" for seconds in figures)
        later = " | ".join(
            f"{seconds / one.events * 1e6:.1f}"
            for seconds in (one.live_cpu, one.folded_cpu, one.summed, one.ready)
        )
        lines.append(
            f"| {one.shape} | {one.sessions:,} | {one.events:,} | {each} | {one.ratio:.2f} | {later} | {one.differences} | "
            f"{'yes' if one.same else 'NO'} | {one.fold_peak:.0f}, {one.peak:.0f} |"
        )
    if len(long) > 1:
        first, last = long[0], long[-1]
        lines += [
            "",
            f"One session of {last.events:,} events against one of {first.events:,}: peak {last.fold_peak / first.fold_peak:.2f} times until it is folded, "
            f"{last.peak / first.peak:.2f} times with its roll-up.",
        ]
    if live is not None:
        lines += ["", *live.lines()]
    return "\n".join([*lines, ""])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument(
        "--fanout-events", type=int, default=30_000, help="the live roll-up of its sessions takes long"
    )
    arguments.add_argument(
        "--long", default="20000,200000", help="lengths of one session, by commas; 0 for none"
    )
    arguments.add_argument(
        "--beside-seconds",
        type=float,
        default=20,
        help="of live traffic before the rebuild beside it; 0: none of it",
    )
    arguments.add_argument(
        "--share", type=float, default=0.5, help="of the capacity, produced beside the rebuild"
    )
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--beside-workers", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--live-processes", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    asked = arguments.parse_args()
    rows: list[Measured] = []
    long: list[Measured] = []
    live = None
    with stack() as addresses:
        found, topic, dsn = measure(
            addresses, "backlog", records("backlog", asked.events), asked, asked.workers
        )
        rows.append(found)
        if asked.beside_seconds:
            live = beside(
                addresses.kafka_bootstrap,
                topic,
                dsn,
                found.events,
                asked.share,
                asked.beside_seconds,
                asked.beside_workers,
            )
            say(" ".join(live.lines()))
        if asked.fanout_events:
            load = records("fanout", asked.fanout_events)
            rows.append(measure(addresses, "fanout", load, asked, asked.workers)[0])
        for length in (int(part) for part in asked.long.split(",")):
            if length:
                long.append(measure(addresses, f"one of {length}", long_session(length), asked, 1)[0])
    asked.out.write_text(report(rows, long, live, asked), encoding="utf-8")
    say(f"written to {asked.out}")
    if not all(one.holds for one in [*rows, *long]) or (live is not None and live.faults):
        sys.exit(1)


if __name__ == "__main__":
    main()
