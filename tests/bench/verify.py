"""``python -m tests.bench.verify``: what ``turnledger verify`` needs, as the ledger grows: peak memory of its process, and seconds.

Fills one database in steps: some sessions, ten times as many, then one long session beside them. After each step ``verify --topics`` runs in a process of
its own. Memory must follow neither the ledger nor the longest session. Seconds belong to the machine and to what else it does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.bench.generate import EVENTS_A_TURN, Record, records
from tests.bench.run import fill, fresh_database
from tests.bench.stack import stack
from turnledger.store.migrate import migrate

RESULTS = Path(__file__).parent / "results" / "verify.md"
COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of ``verify``."""

    step: str
    sessions: int
    events: int
    records: int
    longest: int
    """Events of the longest session."""
    peak_mib: float
    seconds: float


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def sessions(count: int, first: int) -> Iterator[Record]:
    """Sessions of one turn and fourteen events each; every tenth is a copy of the one before it, and so shares its calls."""
    for at in range(first, first + count):
        copied = at % 10 == 9
        for record in records("fanout", EVENTS_A_TURN, seed=at - copied, prefix="short"):
            yield _renamed(record, f"short-{at}", f"short-{at - 1}" if copied else None)


def long_session(events: int) -> Iterator[Record]:
    """One session with about so many events, in turns of fourteen."""
    for number, turn in enumerate(range(0, events, EVENTS_A_TURN)):
        for record in records("fanout", EVENTS_A_TURN, seed=10_000_000 + number, prefix="long"):
            yield _renamed(record, "long", None, turn)


def _renamed(record: Record, session: str, parent: str | None, shift: int = 0) -> Record:
    body = json.loads(record.value)
    body["session_id"] = session
    body["seq"] += shift
    if parent is not None:
        body["parent_session_id"] = parent
    return Record(f"acme/{session}".encode(), json.dumps(body, separators=(",", ":")).encode(), None)


def settle(bootstrap: str, topic: str, dsn: str, total: int) -> None:
    """Let the worker read everything and the rollup worker sum it."""
    log = Path(tempfile.mkstemp(prefix="turnledger-bench-", suffix=".log")[1])
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [*COMMAND, "worker", "--health-port", "0"],
            env=_environment(bootstrap, topic, dsn),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        with psycopg.connect(dsn, autocommit=True) as link:
            waiting = (
                "select coalesce(sum(next_offset), 0) < %s or coalesce(bool_or(flushed_batch < (select max(batch_no) from ledger.ingest_batches b"
                " where b.topic = p.topic and b.partition = p.partition)), true) from ledger.ingest_progress p"
            )
            while link.execute(waiting, (total,)).fetchone() != (False,):
                if worker.poll() is not None:
                    raise RuntimeError(f"the worker ended:\n{log.read_text()[-4000:]}")
                time.sleep(0.5)
    finally:
        worker.terminate()
        worker.wait(timeout=60)
    rollups = [
        subprocess.Popen([*COMMAND, "rollup", "--once"], env=_environment(bootstrap, topic, dsn))
        for _ in range(os.cpu_count() or 1)
    ]
    assert [one.wait() for one in rollups] == [0] * len(rollups)


def _environment(bootstrap: str, topic: str, dsn: str) -> dict[str, str]:
    return os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap,
        "TURNLEDGER_DATABASE_URL": dsn,
        "TURNLEDGER_TOPIC": topic,
    }


def measure(step: str, bootstrap: str, topic: str, dsn: str, longest: int) -> Measured:
    """Run ``verify --topics --json``: it must hold."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, "verify", "--topics", "--json", "--settle", "0"],
            env=_environment(bootstrap, topic, dsn),
            stdout=out,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        out.seek(0)
        found = json.loads(out.read())
    assert process.returncode == 0 and found["holds"], found
    measured = Measured(
        step, found["sessions"], found["events"], found["records"], longest, usage.ru_maxrss / 1024, seconds
    )
    say(
        f"{step}: {measured.sessions} sessions, {measured.events} events: {measured.peak_mib:.0f} MiB, {seconds:.1f} s"
    )
    return measured


def report(rows: list[Measured], command: str, beside: str) -> str:
    few, many, long = rows
    grown = long.peak_mib - many.peak_mib
    lines = [
        f"# What `turnledger verify` needs, {time.strftime('%Y-%m-%d')}",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; `{command}`, {beside}.",
        "",
        "| step | sessions | events | longest session | records of Kafka | peak MiB | seconds | events/s |",
        "|---|---|---|---|---|---|---|---|",
        *map(_line, rows),
        "",
        f"{many.events / few.events:.1f} times the events in short sessions: {many.peak_mib / few.peak_mib:.2f} times the memory. "
        f"One session of {long.longest:,} events beside them: {grown:+.0f} MiB, "
        f"{grown * 1024 / long.longest:.1f} KiB an event of the longest session.",
        "",
    ]
    return "\n".join(lines)


def _line(one: Measured) -> str:
    counts = f"{one.sessions:,} | {one.events:,} | {one.longest:,} | {one.records:,}"
    return f"| {one.step} | {counts} | {one.peak_mib:.0f} | {one.seconds:.1f} | {one.events / one.seconds:,.0f} |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sessions", type=int, default=20_000)
    arguments.add_argument("--long", type=int, default=200_000, help="events of the long session")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument(
        "--beside", default="alone on the machine", help="what the page says of other work"
    )
    asked = arguments.parse_args()
    topic = f"bench-verify-{time.time_ns()}"
    with stack() as addresses:
        bootstrap = addresses.kafka_bootstrap
        dsn = fresh_database(addresses.database_url, "bench_verify")
        migrate(dsn)
        few = asked.sessions // 10
        steps = [
            ("a tenth", sessions(few, 0), 14),
            ("all", sessions(asked.sessions - few, few), 14),
            ("and a long one", long_session(asked.long), asked.long),
        ]
        total = 0
        rows = []
        for name, load, longest in steps:
            total += asyncio.run(fill(bootstrap, topic, 4, load))
            say(f"{name}: {total} records are in Kafka")
            settle(bootstrap, topic, dsn, total)
            rows.append(measure(name, bootstrap, topic, dsn, longest))
    command = f"python -m tests.bench.verify --sessions {asked.sessions} --long {asked.long}"
    asked.out.write_text(report(rows, command, asked.beside), encoding="utf-8")
    say(f"written to {asked.out}")


if __name__ == "__main__":
    main()
