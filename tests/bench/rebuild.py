"""``python -m tests.bench.rebuild``: how fast projections are rebuilt, beside how fast the worker made them, in one run, and in how much memory.

Fills a topic, lets one worker (``--live-processes`` for more) drain it (the live rate), sums it, then rebuilds with as many processes as cores: folding,
roll-ups, comparison. Both do the same fold; the rebuild reads no Kafka, dedupes nothing and stores no event. Absolute figures belong to the
machine; the ratio of the two rates is what counts (issue: at least 2).
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
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from tests.bench.generate import records
from tests.bench.run import fill, fresh_database
from turnledger.devstack import Stack
from turnledger.replay.compare import diff
from turnledger.replay.hands import Processes
from turnledger.replay.rebuild import Progress, Rebuilder, begin, open_connection
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.migrate import migrate

RESULTS = Path(__file__).parent / "results" / "rebuild.md"
COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]


@dataclass(slots=True)
class Measured:
    """One shape. Seconds from the first to the last event of the worker; from the beginning of the rebuild to the end of each phase."""

    shape: str
    events: int
    sessions: int
    live: float
    folded: float = 0.0
    summed: float = 0.0
    ready: float = 0.0
    differences: int = 0
    peaks: list[float] = field(default_factory=list)
    """MiB of each process of the rebuild."""

    @property
    def ratio(self) -> float:
        """Rate of the fold over the worker's."""
        return self.live / self.folded


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def drain(bootstrap: str, topic: str, dsn: str, total: int, processes: int) -> float:
    """Seconds of a worker over everything that waits, from the first event applied to the last projection."""
    environment = os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap,
        "TURNLEDGER_DATABASE_URL": dsn,
        "TURNLEDGER_TOPIC": topic,
    }
    log = Path(tempfile.mkstemp(prefix="turnledger-bench-", suffix=".log")[1])
    with log.open("wb") as out:
        command = [*COMMAND, "worker", "--health-port", "0", "--processes", str(processes)]
        worker = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    began = None
    try:
        with psycopg.connect(dsn, autocommit=True) as link:
            while True:
                row = link.execute(
                    "select coalesce(sum(next_offset), 0), coalesce(bool_or(flushed_batch < (select max(batch_no) from ledger.ingest_batches b "
                    "where b.topic = p.topic and b.partition = p.partition)), true) from ledger.ingest_progress p"
                ).fetchone()
                assert row is not None
                if began is None and row[0] > 0:
                    began, first = time.perf_counter(), row[0]
                if row[0] >= total:
                    break
                if worker.poll() is not None:
                    raise RuntimeError(f"the worker ended:\n{log.read_text()[-4000:]}")
                time.sleep(0.05)
            assert began is not None
            seconds = (time.perf_counter() - began) * total / max(1, total - int(first))
            while link.execute(
                "select bool_or(flushed_batch < (select max(batch_no) from ledger.ingest_batches b where b.topic = p.topic and b.partition = p.partition)) "
                "from ledger.ingest_progress p"
            ).fetchone() != (False,):
                time.sleep(0.2)
    finally:
        worker.terminate()
        worker.wait(timeout=60)
    return seconds


def rebuild(dsn: str, found: Measured, workers: int) -> None:
    """Until it could be switched to."""
    with open_connection(dsn) as connection:
        began = time.perf_counter()
        there = begin(connection, by="bench")
        peaks: dict[int, float] = {}
        end = threading.Event()

        def told(progress: Progress) -> None:
            now = time.perf_counter() - began
            if progress.phase == "folding":
                if not found.folded and progress.pieces_done == progress.pieces:
                    found.folded = now
                if found.folded and not found.summed and not progress.marks:
                    found.summed = now

        def watch() -> None:
            while not end.wait(0.2):
                for child in psutil.Process().children():
                    try:
                        used = child.memory_info().rss / 2**20
                    except psutil.NoSuchProcess:
                        continue
                    peaks[child.pid] = max(peaks.get(child.pid, 0.0), used)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with Processes(workers, dsn, there) as hands:
            Rebuilder(connection, there, hands, told).run()
        found.ready = time.perf_counter() - began
        end.set()
        watcher.join()
        found.peaks = sorted(peaks.values())
        found.differences = len(diff(connection).sessions)


def measure(bootstrap: str, url: str, shape: str, events: int, asked: argparse.Namespace) -> Measured:
    topic = f"bench-rebuild-{time.time_ns()}"
    dsn = fresh_database(url, f"bench_rebuild_{shape}")
    migrate(dsn)
    total = asyncio.run(fill(bootstrap, topic, 4, records(shape, events)))
    say(f"{shape}: {total} records are in Kafka")
    live = drain(bootstrap, topic, dsn, total, asked.live_processes)
    Rollup(RollupSettings(), dsn, PriceBook()).drain()
    with psycopg.connect(dsn) as link:
        row = link.execute("select count(*) from ledger.sessions").fetchone()
    found = Measured(shape, total, row[0] if row is not None else 0, live)
    rebuild(dsn, found, asked.workers)
    say(
        f"{shape}: live {total / live:,.0f}/s, fold {total / found.folded:,.0f}/s ({found.ratio:.2f} times), {found.differences} differ"
    )
    return found


def report(rows: list[Measured], asked: argparse.Namespace) -> str:
    lines = [
        f"# Rebuild, {time.strftime('%Y-%m-%d')}",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; `python -m tests.bench.rebuild`. Live: one worker command with "
        f"{asked.live_processes} process(es), backlog. Rebuild: {asked.workers} processes, their start included.",
        "",
        "| shape | sessions | events | live µs/event | fold µs | fold / live (rates) | with roll-ups µs | ready µs | differ | peak MiB a process |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        figures = [one.live, one.folded]
        each = " | ".join(f"{seconds / one.events * 1e6:.1f}" for seconds in figures)
        later = " | ".join(f"{seconds / one.events * 1e6:.1f}" for seconds in (one.summed, one.ready))
        peaks = ", ".join(f"{peak:.0f}" for peak in one.peaks)
        lines.append(
            f"| {one.shape} | {one.sessions:,} | {one.events:,} | {each} | {one.ratio:.2f} | {later} | {one.differences} | {peaks} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument(
        "--fanout-events", type=int, default=100_000, help="the live roll-up of its sessions takes long"
    )
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--live-processes", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="turnledger-bench-") as folder, ExitStack() as at_end:
        stack = Stack(Path(folder))
        addresses = stack.up()
        at_end.callback(stack.down, remove=True)
        rows = [
            measure(addresses.kafka_bootstrap, addresses.database_url, shape, events, asked)
            for shape, events in (("backlog", asked.events), ("fanout", asked.fanout_events))
            if events
        ]
    asked.out.write_text(report(rows, asked), encoding="utf-8")
    say(f"written to {asked.out}")


if __name__ == "__main__":
    main()
