"""``python -m tests.bench.check``: what ``turnledger sessions check --all`` needs, as the ledger grows.

The sessions are those of ``tests.bench.verify``, read by a worker and rolled up; in every tenth no tool call gets its result, which is a finding. First a
tenth of the sessions, then all of them. ``verify`` alone is measured beside it, since ``check`` asks it first: what is left is the evidence of the odd ones.
Seconds belong to the machine and to what else it does; how they and the memory grow is what counts.
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
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.generate import Record
from tests.bench.run import fill, fresh_database
from tests.bench.stack import stack
from tests.bench.verify import sessions, settle
from turnledger.store.migrate import migrate

RESULTS = Path(__file__).parent / "results" / "check.md"
COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]
ODD = 10
"""Every so many sessions one is odd."""


class Measured(NamedTuple):
    """One run of a command."""

    command: str
    sessions: int
    odd: int
    seconds: float
    peak_mib: float


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def odd_ones(records: Iterator[Record]) -> Iterator[Record]:
    """The same sessions; of every tenth the results of tool calls are of a type that nothing reads, so that none is answered."""
    for record in records:
        body = json.loads(record.value)
        if int(body["session_id"].rpartition("-")[2]) % ODD == 0 and body["type"] == "tool_call.completed":
            body["type"] = "tool_call.lost"
            record = Record(record.key, json.dumps(body, separators=(",", ":")).encode(), record.ends_turn)
        yield record


def run(command: str, dsn: str) -> Measured:
    """Run ``verify`` or ``sessions check --all`` in a process of its own."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, *command.split(), "--settle", "0", "--json"],
            env=os.environ | {"TURNLEDGER_DATABASE_URL": dsn},
            stdout=out,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        out.seek(0)
        found: dict[str, Any] = json.loads(out.read())
    looked_at = found["sessions"] if command == "verify" else found["looked_at"]
    odd = 0 if command == "verify" else len(found["sessions"])
    measured = Measured(command, looked_at, odd, seconds, usage.ru_maxrss / 1024)
    say(f"{command}: {looked_at} sessions, {odd} of them odd: {seconds:.1f} s, {measured.peak_mib:.0f} MiB")
    return measured


def report(rows: list[Measured]) -> str:
    lines = [
        f"# What `turnledger sessions check --all` needs, {time.strftime('%Y-%m-%d')}",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; `python -m tests.bench.check`.",
        "",
        "| command | sessions | odd | seconds | ms a session | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{one.command}` | {one.sessions:,} | {one.odd if one.odd else '–'} | {one.seconds:.1f} | "
        f"{1000 * one.seconds / one.sessions:.1f} | {one.peak_mib:.0f} |"
        for one in rows
    ]
    verified, checked = rows[-2:]
    beside = 1000 * (checked.seconds - verified.seconds) / max(1, checked.odd)
    lines += ["", f"The evidence of one odd session: {beside:.0f} ms. {_times(rows[1], checked)}", ""]
    return "\n".join(lines)


def _times(few: Measured, many: Measured) -> str:
    return (
        f"{many.sessions / few.sessions:.0f} times the sessions: {many.seconds / few.seconds:.1f} times the seconds, "
        f"{many.peak_mib / few.peak_mib:.2f} times the memory."
    )


def main() -> None:
    """Fill, ask, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    topic, few = f"bench-check-{time.time_ns()}", asked.sessions // 10
    with stack() as addresses:
        dsn = fresh_database(addresses.database_url, "bench_check")
        migrate(dsn)
        rows: list[Measured] = []
        total = 0
        for count, first in ((few, 0), (asked.sessions - few, few)):
            made = odd_ones(sessions(count, first))
            total += asyncio.run(fill(addresses.kafka_bootstrap, topic, 4, made))
            settle(addresses.kafka_bootstrap, topic, dsn, total)
            rows += [run("verify", dsn), run("sessions check --all", dsn)]
    asked.out.write_text(report(rows))
    print(report(rows))


if __name__ == "__main__":
    main()
