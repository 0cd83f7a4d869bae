"""``python -m tests.bench.rollups``: many sessions that are dirty at once, and one that never ends.

Projections are written by SQL from one folded session, so that rolling up is measured and nothing else. ``make bench`` runs it too.
Absolute figures belong to the machine; that a moved turn costs the same in a session of any age is a ratio, and a test holds it too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.stack import database
from tests.integration.projected import SLOT, call, lengthen, lines, plain, project, started
from turnledger.pricing import Prices, Published, packaged
from turnledger.rollup.rows import Statements
from turnledger.rollup.session import roll_up_session
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds
from turnledger.store.migrate import migrate

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "rollups.json"
COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]
EVENTS_A_TURN = 14
PRICES = Prices([Published(packaged(), None)])


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def template(name: str) -> list[bytes]:
    """One session of one turn and fourteen events: two model calls, four tool calls, a request."""
    events = [
        started(name),
        plain(name, 1, "turn.started", {"input_preview": "go"}),
        call(name, 2, f"{name}-a", 1200, payload={"latency_ms": 900}),
        *(
            event
            for at in range(4)
            for event in (
                plain(name, 3 + 2 * at, "tool_call.requested", {"tool_name": "bash"}, tool_call_id=f"x{at}"),
                plain(
                    name,
                    4 + 2 * at,
                    "tool_call.completed",
                    {"status": "ok", "duration_ms": 7},
                    tool_call_id=f"x{at}",
                ),
            )
        ),
        plain(name, 11, "net.requested", {"domain": "a.example", "decision": "allowed"}),
        call(name, 12, f"{name}-b", 1300),
        plain(name, 13, "turn.completed", {"status": "completed"}),
    ]
    assert len(events) == EVENTS_A_TURN
    return lines({name: events})


def copies(link: psycopg.Connection[Any], name: str, count: int) -> None:
    """So many sessions like one that is projected, with calls of their own."""
    link.execute(
        "insert into ledger.sessions (tenant, session_id, home_topic, home_partition)"
        " select 'default', %s || '-' || n, 'x', 0 from generate_series(1, %s) n",
        (name, count),
    )
    own = {"session_no": "s.session_no", "message_id": "t.message_id || '-' || s.session_no"}
    for table in ("session_facts", "turns", "turn_records", "model_calls", "tool_calls"):
        described = link.execute(f"select * from {SLOT}.{table} limit 0").description or []  # type: ignore[call-overload]  # names of ours
        listed = ", ".join(own.get(column.name, f"t.{column.name}") for column in described)
        link.execute(
            f"insert into {SLOT}.{table} select {listed} from {SLOT}.{table} t join ledger.sessions o on o.session_no = t.session_no, "  # type: ignore[call-overload]
            "ledger.sessions s where o.session_id = %s and s.session_id like %s",
            (name, f"{name}-%"),
        )
    link.execute("analyze")


def drained(dsn: str, workers: int) -> float:
    """Seconds in which so many worker processes roll up what is marked, from their start."""
    environment = os.environ | {"TURNLEDGER_DATABASE_URL": dsn}
    began = time.perf_counter()
    running = [subprocess.Popen([*COMMAND, "rollup", "--once"], env=environment) for _ in range(workers)]
    for one in running:
        if one.wait(timeout=600) != 0:
            raise RuntimeError("a rollup worker failed")
    return time.perf_counter() - began


def dirty(link: psycopg.Connection[Any], dsn: str, sessions: int, workers: Sequence[int]) -> dict[str, Any]:
    """All sessions dirty at once, rolled up from nothing, by one worker and by several."""
    project(link, template("many"))
    copies(link, "many", sessions - 1)
    found: dict[str, Any] = {"sessions": sessions}
    for count in workers:
        link.execute("truncate ledger.marks")
        for table in ("sessions", "ai_usage", "tool_usage", "hour_parts", "usage_hourly", "call_overlay", "turn_overlay", "call_claims",
                      "call_groups", "rollup_due", "hour_marks"):  # fmt: skip
            link.execute(f"truncate {SLOT}.{table}")  # type: ignore[call-overload]
        link.execute("insert into ledger.marks (session_no) select session_no from ledger.sessions")
        seconds = drained(dsn, count)
        link.execute("truncate ledger.marks")
        idle = drained(dsn, count)
        ((rows, tokens, hours),) = link.execute(
            "select count(*), sum(output_tokens)::int8, (select sum(output_tokens)::int8 from turnledger.usage_hourly) from turnledger.sessions"
        ).fetchall()
        assert (rows, tokens, hours) == (sessions, 10 * sessions, 10 * sessions), (rows, tokens, hours)
        found[f"workers_{count}_seconds"] = round(seconds, 2)
        found[f"workers_{count}_per_second"] = round(sessions / max(0.001, seconds - idle))
        say(
            f"{sessions} dirty sessions, {count} workers: {seconds:.1f} s ({idle:.1f} of them to start), {found[f'workers_{count}_per_second']} a second"
        )
    return found


def ages(link: psycopg.Connection[Any], sizes: Sequence[int]) -> dict[str, Any]:
    """What one moved turn costs in a session of so many events, and what reading it whole does."""
    do = Statements(link, SLOT)
    found: dict[str, Any] = {}
    for events in sizes:
        name, turns = f"long{events}", events // EVENTS_A_TURN
        project(link, template(name))
        number = lengthen(link, name, turns)
        link.execute("analyze")
        began = time.perf_counter()
        roll_up_session(do, number, PRICES, now=True)
        whole = time.perf_counter() - began
        link.execute("vacuum analyze")  # as autovacuum does within a minute
        times = []
        for step in range(20):
            _move(link, number, turns, step)
            began = time.perf_counter()
            roll_up_session(do, number, PRICES, now=True)
            times.append(time.perf_counter() - began)
        found[f"events_{events}"] = {
            "turns": turns,
            "whole_ms": round(whole * 1000, 1),
            "moved_turn_ms": round(statistics.median(times) * 1000, 1),
        }
        say(
            f"a session of {events} events: {whole * 1000:.0f} ms whole, {found[f'events_{events}']['moved_turn_ms']} ms for a turn that moved"
        )
    return found


def _move(link: psycopg.Connection[Any], session_no: int, turn_no: int, tokens: int) -> None:
    """What the worker does when a turn moves: its rows, and a mark that names it."""
    with link.transaction():
        link.execute(
            f"update {SLOT}.model_calls set output_tokens = %s where session_no = %s and turn_no = %s",  # type: ignore[call-overload]
            (1000 + tokens, session_no, turn_no),
        )
        link.execute(
            "insert into ledger.marks (session_no, turns, slot) values (%s, %s, %s)",
            (session_no, [turn_no], SLOT),
        )


def busy(
    link: psycopg.Connection[Any], dsn: str, events: int, workers: int, seconds: float
) -> dict[str, Any]:
    """A session of that age that moves ten times a second, beside workers that run: how often its sums are set."""
    turns = events // EVENTS_A_TURN
    ((number,),) = link.execute(
        "select session_no from ledger.sessions where session_id = %s", (f"long{events}",)
    ).fetchall()
    environment = os.environ | {"TURNLEDGER_DATABASE_URL": dsn}
    running = [
        subprocess.Popen([*COMMAND, "rollup", "--health-port", "0"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(workers)
    ]  # fmt: skip
    seen: list[tuple[float, int]] = []
    read = f"select output_tokens from {SLOT}.sessions where session_no = %s"
    try:
        listening = "select count(*) from pg_stat_activity where application_name = 'turnledger rollup' and datname = current_database()"
        while link.execute(listening).fetchone() != (workers,):
            time.sleep(0.1)
        began, step, moved_at = time.perf_counter(), 0, 0.0
        while (now := time.perf_counter() - began) < seconds:
            if now >= moved_at:
                step, moved_at = step + 1, moved_at + 0.1
                _move(link, number, turns, step)
            row = link.execute(read, (number,)).fetchone()  # type: ignore[call-overload]
            assert row is not None
            if not seen or seen[-1][1] != row[0]:
                seen.append((now, row[0]))
            time.sleep(0.01)
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait(timeout=60)
    pauses = [later[0] - earlier[0] for earlier, later in pairwise(seen[1:])]
    if not pauses:
        raise RuntimeError(
            f"the session was set {len(seen)} times in {seconds} s: this machine is too busy to measure"
        )
    found = {
        "events": events,
        "workers": workers,
        "set_every_seconds": round(statistics.median(pauses), 2),
        "longest_pause_seconds": round(max(pauses), 2),
    }
    say(
        f"a busy session of {events} events beside {workers} workers is set every {found['set_every_seconds']} s "
        f"(median; longest {found['longest_pause_seconds']} s)"
    )
    return found


def measure(dsn: str, sessions: int, sizes: Sequence[int], workers: Sequence[int]) -> dict[str, Any]:
    """All of it on an empty, migrated database."""
    with connect(dsn, "bench", autocommit=True, statement_seconds=0, idle_seconds=0) as link:
        load_as_microseconds(link)
        report: dict[str, Any] = {"dirty": dirty(link, dsn, sessions, workers)}
        link.execute("truncate ledger.marks")
        report["ages"] = ages(link, sizes)
        report["busy"] = busy(link, dsn, max(sizes), max(workers), 10.0)
    return report


def lines_of(report: dict[str, Any]) -> list[str]:
    """The report as Markdown."""
    many, age, live = report["dirty"], report["ages"], report["busy"]
    told = [
        "| dirty sessions | workers | seconds, with their start | sessions a second |",
        "|---|---|---|---|",
    ]
    for name, seconds in many.items():
        if name.endswith("_seconds"):
            count = name.split("_")[1]
            told.append(
                f"| {many['sessions']:,} | {count} | {seconds} | {many[f'workers_{count}_per_second']} |"
            )
    told += [
        "",
        "| events of a session | turns | rolled up whole, ms | a turn that moved, ms |",
        "|---|---|---|---|",
    ]
    for name, one in age.items():
        told.append(
            f"| {int(name.split('_')[1]):,} | {one['turns']:,} | {one['whole_ms']} | {one['moved_turn_ms']} |"
        )
    told += [
        "",
        f"A session of {live['events']:,} events that moves ten times a second, beside {live['workers']} workers: its sums are set every "
        f"{live['set_every_seconds']} s (median), the longest pause was {live['longest_pause_seconds']} s.",
        "",
    ]
    return told


def main() -> None:
    """Run it and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--events", default="20000,200000", help="ages of the session that never ends")
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    with database() as url:
        migrate(url)
        report = measure(
            url,
            asked.sessions,
            [int(events) for events in asked.events.split(",")],
            [int(count) for count in asked.workers.split(",")],
        )
    report["at"] = time.strftime("%Y-%m-%d")
    report["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=1) + "\n")
    page = [
        f"# Rolling up, {report['at']}",
        "",
        f"{report['machine']}; `python -m tests.bench.rollups`.",
        "",
        *lines_of(report),
    ]
    asked.out.with_suffix(".md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    main()
