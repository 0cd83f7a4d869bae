"""``python -m tests.bench.retention``: what letting go, archiving and bringing back cost, an event at a time. No broker; Postgres of the embedded stack.

Sessions of one turn and fourteen events each, and one long one. Seconds belong to the machine and to what else it does: compare rates inside one run.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.generate import EVENTS_A_TURN, records
from tests.integration.letting_go import PRICE, apply, moved_back, rolled_up
from tests.stack import databases, servers
from turnledger.archive.place import place
from turnledger.archive.read import find
from turnledger.archive.write import closed_days, plans, write
from turnledger.contract.redact import Redactor
from turnledger.devstack import choose
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


def measured(what: str, events: int, work: Callable[[], object], table: list[str]) -> None:
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    table.append(f"| {what} | {events:,} | {seconds:.1f} | {events / seconds:,.0f} |")
    print(f"bench: {table[-1]}", flush=True)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--sessions", type=int, default=1000)
    sessions = given.parse_args().sessions
    raws = sent(sessions)
    ends = [
        b'{"session_id":"%s","producer":"closer","type":"session.ended","receipt_key":"end","payload":{"status":"stopped"}}'
        % name
        for name in sorted({raw.split(b'"session_id":"', 1)[1].split(b'"', 1)[0] for raw in raws})
    ]
    raws += ends
    stack = servers.provide(choose())
    table: list[str] = []
    try:
        template = databases.migrated_template(stack.database_url)
        first, second = (databases.create(stack.database_url, template=template) for _ in range(2))
        measured(
            "applied as a log",
            len(raws),
            partial(apply, first, "log", raws, rounds=-(-len(raws) // 2000)),
            table,
        )
        measured("rolled up", len(raws), partial(rolled_up, first), table)
        moved_back(first, 3)
        with tempfile.TemporaryDirectory() as folder:
            where = place(folder)
            with connect(first, "bench", autocommit=True) as connection:

                def archive() -> None:
                    for one in plans(connection, closed_days(connection), None):
                        write(connection, where, one.tenant, one.day, by="bench")

                measured("archived", len(raws), archive, table)
            (archived,), _ = find(where)
            measured("archive checked", len(raws), archived.check, table)
            with connect(second, "bench", autocommit=True) as connection:
                decider = ArchiveDecider(65536, Redactor())
                load = partial(replay, connection, where, decider, by="bench")
                measured("replayed into an empty ledger", len(raws), load, table)
        with connect(first, "bench", autocommit=True, lock_seconds=10) as connection:
            rules = Rules(max_sessions=0, keep_content=0)
            measured(
                "let go of, each proven first",
                len(raws),
                partial(run, connection, rules, by="bench", why="bench"),
                table,
            )
        rolled_up(first)
        assert verify(first, PRICE, settle_seconds=10).holds
        plain = sum(map(len, raws))
        size = archived.manifest.size
    finally:
        stack.close()
    RESULTS.write_text(
        f"# Retention and archive, {time.strftime('%Y-%m-%d')}\n\n"
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; `python -m tests.bench.retention --sessions {sessions}`, "
        "beside other work of the machine.\n\n| what | events | seconds | events/s |\n|---|---|---|---|\n"
        + "\n".join(table)
        + f"\n\nThe archive has {size:,} bytes for {plain:,} of events: {plain / size:.1f} times fewer.\n"
    )


if __name__ == "__main__":
    main()
