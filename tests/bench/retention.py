"""``python -m tests.bench.retention``: what reading a topic again, letting go, archiving and bringing back cost, an event at a time, beside a worker's rate.

Sessions of one turn and fourteen events each. One worker drains a topic (the live rate); `replay topics` reads it into an empty ledger, as a backfill, and
once more where all of it is known. Then the same events are archived, brought back into an empty ledger, and let go of. Seconds belong to the machine and to
what else it does: compare rates inside one run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.generate import EVENTS_A_TURN, Record, records
from tests.bench.rebuild import COMMAND, drain
from tests.bench.run import drain as backfilled
from tests.bench.run import fill
from tests.bench.stack import stack
from tests.integration.letting_go import PRICE, moved_back, rolled_up
from tests.stack import databases
from turnledger.archive.place import place
from turnledger.archive.read import find
from turnledger.archive.write import closed_days, plans, write
from turnledger.contract.redact import Redactor
from turnledger.doctor.verify import verify
from turnledger.replay.archive import ArchiveDecider, replay
from turnledger.retention.rules import Rules
from turnledger.retention.run import run
from turnledger.store.connect import connect

RESULTS = Path(__file__).parent / "results" / "retention.md"


def sent(sessions: int) -> list[bytes]:
    """Events of so many ended sessions."""
    found = [record.value for record in records("fanout", sessions * EVENTS_A_TURN, prefix="short")]
    return [raw for raw in found if raw is not None]


class Table:
    """What was measured, beside the live rate."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.live = 0.0
        """Events a second of one worker."""

    def add(self, what: str, events: int, seconds: float) -> None:
        rate = events / seconds
        self.live = self.live or rate
        self.lines.append(f"| {what} | {events:,} | {seconds:.1f} | {rate:,.0f} | {rate / self.live:.2f} |")
        print(f"bench: {self.lines[-1]}", flush=True)

    def measured(self, what: str, events: int, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        self.add(what, events, time.perf_counter() - began)


def from_topic(bootstrap: str, topic: str, dsn: str, start: str = "beginning") -> float:
    """Seconds of `replay topics` over all of a topic, or from ``start`` on."""
    environment = os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap,
        "TURNLEDGER_DATABASE_URL": dsn,
        "TURNLEDGER_TOPIC": topic,
    }
    command = [*COMMAND, "replay", "topics", "--from", start, "--to", "now", "--by", "bench", "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"replay topics: {done.stdout} {done.stderr}")
    return time.perf_counter() - began


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--sessions", type=int, default=2_000)
    given.add_argument("--out", type=Path, default=RESULTS)
    asked = given.parse_args()
    raws = sent(asked.sessions)
    ends = [
        b'{"tenant":"acme","session_id":"%s","producer":"closer","type":"session.ended","receipt_key":"end","payload":{"status":"stopped"}}'
        % name
        for name in sorted({raw.split(b'"session_id":"', 1)[1].split(b'"', 1)[0] for raw in raws})
    ]
    raws += ends
    count = len(raws)
    table = Table()
    with stack() as there:
        template = databases.migrated_template(there.database_url)
        first, second, third = (databases.create(there.database_url, template=template) for _ in range(3))
        topic = f"bench-retention-{time.time_ns()}"
        load = (
            Record(b"acme/" + raw.split(b'"session_id":"', 1)[1].split(b'"', 1)[0], raw, None) for raw in raws
        )
        asyncio.run(fill(there.kafka_bootstrap, topic, 4, load))
        table.add(
            "live: one worker drains a topic", count, drain(there.kafka_bootstrap, topic, first, count, 1)[0]
        )
        read = partial(from_topic, there.kafka_bootstrap, topic)
        starts = read(first, "1s")
        found = backfilled(there.kafka_bootstrap, topic, second, count, backfill=True)
        table.add("`replay topics` into an empty ledger", found["events"], found["seconds"])
        table.add("`replay topics` where all is known", count, read(first) - starts)
        table.measured("rolled up", count, partial(rolled_up, first))
        moved_back(first, 3)
        with tempfile.TemporaryDirectory() as folder:
            where = place(folder)
            with connect(first, "bench", autocommit=True) as connection:

                def archive() -> None:
                    for one in plans(connection, closed_days(connection), None):
                        write(connection, where, one.tenant, one.day, by="bench")

                table.measured("archived", count, archive)
            (archived,), _ = find(where)
            table.measured("archive checked", count, archived.check)
            with connect(third, "bench", autocommit=True) as connection:
                decider = ArchiveDecider(65536, Redactor())
                bring_back = partial(replay, connection, where, decider, by="bench")
                table.measured("`replay archive` into an empty ledger", count, bring_back)
        with connect(first, "bench", autocommit=True, lock_seconds=10) as connection:
            rules = Rules(max_sessions=0, keep_content=0)
            let_go = partial(run, connection, rules, by="bench", why="bench")
            table.measured("let go of, each session proven first", count, let_go)
        rolled_up(first)
        assert verify(first, PRICE, settle_seconds=10).holds
        plain = sum(map(len, raws))
        size = archived.manifest.size
    asked.out.write_text(
        f"# Retention, archive and reading again, {time.strftime('%Y-%m-%d')}\n\n"
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; `python -m tests.bench.retention --sessions {asked.sessions}`. "
        "Each alone, one after the other. A worker and a backfill are measured from their first commit to their last one; of the second reading the start "
        f"({starts:.1f} s, nothing to read) is left out. The last column is the rate over that of one worker in this run.\n\n"
        "| what | events | seconds | events/s | of live |\n|---|---|---|---|---|\n"
        + "\n".join(table.lines)
        + f"\n\nThe archive has {size:,} bytes for {plain:,} of events: {plain / size:.1f} times fewer.\n",
        encoding="utf-8",
    )
    print(f"bench: written to {asked.out}", flush=True)


if __name__ == "__main__":
    main()
