"""Questions over a fleet's point events: five million rows, asked through the views of schema ``turnledger`` (issue: under 2 s each).

``python -m tests.bench.point_queries`` starts a Postgres of its own, fills the tables of the active projection in the order in which ingest would (by
time, over all sessions), asks each question ten times and writes ``results/point_queries.md`` with medians and plans. The rows are made by
``generate_series`` inside the database, not by COPY: what is measured is reading. What an index costs a writer is measured beside it, with COPY.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.stack import database
from turnledger.store.migrate import migrate

HERE = Path(__file__).parent
LIMIT_SECONDS = 2.0
TENANTS, SESSIONS, DAYS = 10, 10_000, 30
ASKED = 10
COPIED = 100_000
"""Rows of the measurement of writing."""

COMMON = """
    1 + abs(hashint8(n)::int8) % {sessions}, 1 + abs(hashint8(n)::int8) % {sessions}, n, substr(md5(n::text), 1, 12),
    {at}, 'trace-' || n % 100000, 'turn-' || n / 20, 'live', 'agent', '4242'
"""
AT = "timestamptz '2026-01-01 00:00Z' + n * interval '1 day' * {days} / {rows}"
NAMES = "session_no, stream_no, seq, event_id, occurred_at, trace_id, turn_id, kind, process_name, pid"
FILLED = {
    "net_events": (
        0.4,
        "domain, port, decision, method, path, status_code, bytes_sent, bytes_received, duration_ms",
        "'host-' || (n * 31) % 500 || '.example', 443, case (n * 17) % 10 when 8 then 'denied' when 9 then 'error' else 'allowed' end, 'GET', "
        "'/simple/package-' || n % 1000 || '/index.html', 200, 412, 18231, 84",
    ),
    "fs_events": (
        0.4,
        "action, path, size, entry_kind",
        "(array['created','modified','modified','modified','deleted','read'])[1 + (n * 13) % 6], "
        "'src/module_' || n % 5000 || '/file_' || n % 97 || '.py', n % 65536, 'file'",
    ),
    "exec_events": (
        0.2,
        "exec_id, command, source, exit_code, duration_ms, stdout_bytes, stderr_bytes, started_at, exited_at",
        "n::text, 'grep -rn cache_key build/' || n % 100, 'api', (array[0,0,0,0,0,1,2,127,137,null])[1 + (n * 11) % 10], 31, 900, 0, "
        "{at}, {at}",
    ),
}
"""(share of the rows, columns, their values of the n-th row)."""

WEEK = "occurred_at >= timestamptz '2026-01-24 00:00Z'"
QUESTIONS = {
    "denied requests by domain and day": "select occurred_at::date as day, domain, count(*) from turnledger.net_events "
    "where decision = 'denied' group by 1, 2 order by 1, 2",
    "denied requests by domain and day, one tenant, the last week": "select occurred_at::date as day, domain, count(*) from turnledger.net_events "
    f"where decision = 'denied' and tenant = 'tenant-3' and {WEEK} group by 1, 2 order by 1, 2",
    "files by action": "select action, count(*), sum(size) from turnledger.fs_events group by 1 order by 1",
    "files by action, by tenant": "select tenant, action, count(*) from turnledger.fs_events group by 1, 2 order by 1, 2",
    "commands by exit code": "select exit_code, count(*) from turnledger.exec_events group by 1 order by 1",
    "commands by exit code, the last week": f"select exit_code, count(*) from turnledger.exec_events where {WEEK} group by 1 order by 1",
}


def say(text: str) -> None:
    """One line of progress."""
    print(f"point_queries: {text}", flush=True)


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """A database to fill: the one that is named, else an embedded server's that is removed afterwards."""
    if url is not None:
        yield url
        return
    with database() as own:
        yield own


def fill(link: psycopg.Connection[Any], rows: int) -> None:
    """Sessions with a stream each, then the point rows in the order of time."""
    link.execute(
        "insert into ledger.sessions (session_no, tenant, session_id, home_topic, home_partition) "
        "select n, 'tenant-' || n %% %s, 'session-' || n, 't', 0 from generate_series(1, %s) n",
        (TENANTS, SESSIONS),
    )
    link.execute(
        "insert into ledger.streams (stream_no, session_no, producer, epoch, stream) select n, n, 'harness', 0, 'ledger' from generate_series(1, %s) n",
        (SESSIONS,),
    )
    for table, (share, names, values) in FILLED.items():
        number = int(rows * share)
        at = AT.format(days=DAYS, rows=number)
        made = (COMMON + ", " + values).format(sessions=SESSIONS, at=at)
        began = time.monotonic()
        link.execute(
            f"insert into projection_a.{table} ({NAMES}, {names}) select {made} from generate_series(1::int8, {number}) n"  # type: ignore[arg-type]  # names of ours
        )
        say(f"{table}: {number:,} rows in {time.monotonic() - began:.0f} s")
    for table in (*(f"projection_a.{table}" for table in FILLED), "ledger.sessions", "ledger.streams"):
        link.execute(f"vacuum (analyze) {table}")  # type: ignore[arg-type]  # names of ours


def asked(link: psycopg.Connection[Any], question: str) -> tuple[float, list[str], int]:
    """(median seconds, plan, rows of the answer)."""
    taken: list[float] = []
    answer = 0
    for _ in range(ASKED):
        began = time.perf_counter()
        answer = len(link.execute(question).fetchall())  # type: ignore[arg-type]
        taken.append(time.perf_counter() - began)
    plan = [
        row[0]
        for row in link.execute(f"explain (analyze, buffers, costs off, timing off) {question}").fetchall()
    ]  # type: ignore[arg-type]
    return statistics.median(taken), plan, answer


def copying(link: psycopg.Connection[Any], table: str) -> Callable[[], float]:
    """Copies rows like those that are there into a table of the same layout; gives µs a row."""
    buffer = io.BytesIO()
    with link.cursor().copy(
        f"copy (select * from projection_a.{table} limit {COPIED}) to stdout (format binary)"
    ) as source:  # type: ignore[arg-type]
        for block in source:
            buffer.write(block)
    data = buffer.getvalue()

    def copy() -> float:
        link.execute("truncate scratch")
        began = time.perf_counter()
        with link.cursor().copy("copy scratch from stdin (format binary)") as target:
            target.write(data)
        return (time.perf_counter() - began) / COPIED * 1e6

    return copy


def index_cost(link: psycopg.Connection[Any], table: str) -> list[tuple[str, float]]:
    """µs a copied row of a table without indexes, with the session's index, and with all that the migrations make."""
    made = link.execute(
        "select indexdef from pg_indexes where schemaname = 'projection_a' and tablename = %s order by indexname <> %s, indexname",
        (table, f"{table}_session"),
    ).fetchall()
    link.execute(f"create temporary table scratch (like projection_a.{table})")  # type: ignore[arg-type]
    copy = copying(link, table)
    found: list[tuple[str, float]] = []
    found.append(("none", statistics.median(copy() for _ in range(3))))
    for number, (definition,) in enumerate(made):
        head, tail = definition.split(f" ON projection_a.{table} ")
        name = head.rsplit(" ", 1)[1]
        link.execute(f"create index scratch_{number} on scratch {tail}")
        found.append((name, statistics.median(copy() for _ in range(3))))
    link.execute("drop table scratch")
    return found


def report(
    rows: int,
    answers: dict[str, tuple[float, list[str], int]],
    costs: dict[str, list[tuple[str, float]]],
    sizes: list[tuple[str, str, str]],
) -> str:
    """The page of results."""
    lines = [
        f"# Questions over {rows:,} point events",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, the embedded Postgres with its usual settings; "
        f"{SESSIONS:,} sessions of {TENANTS} tenants over {DAYS} days. "
        f"Asked through the views of `turnledger`, {ASKED} times each; aim: under {LIMIT_SECONDS:.0f} s.",
        "",
        "| question | median s | rows of the answer |",
        "|---|---|---|",
        *(f"| {name} | {seconds:.2f} | {count:,} |" for name, (seconds, _, count) in answers.items()),
        "",
        "| table | rows | indexes |",
        "|---|---|---|",
        *(f"| {table} | {heap} | {index} |" for table, heap, index in sizes),
        "",
        f"What an index costs a writer: µs a row of a COPY of {COPIED:,} rows into an empty table, each line with the indexes of the lines above it.",
        "",
        "| table | index | µs a row |",
        "|---|---|---|",
        *(f"| {table} | {name} | {cost:.2f} |" for table, found in costs.items() for name, cost in found),
        "",
        "Rows were made by `generate_series` inside the database, in the order of time; COPY is what writing was measured with.",
    ]
    for name, (_, plan, _) in answers.items():
        lines += ["", f"## {name}", "", "```", *plan, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fill, ask, write the page. Exits with 1 when a median is above the aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="point rows in all")
    parser.add_argument("--url", help="a fresh, empty database instead of a server of its own")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "point_queries.md")
    given = parser.parse_args()
    with server(given.url) as url:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as link:
            fill(link, given.rows)
            answers: dict[str, tuple[float, list[str], int]] = {}
            for name, question in QUESTIONS.items():
                answers[name] = asked(link, question)
                say(f"{name}: {answers[name][0]:.2f} s")
            costs = {table: index_cost(link, table) for table in FILLED}
            sizes = [
                (table, *row)
                for table in FILLED
                for row in link.execute(
                    "select pg_size_pretty(pg_table_size(t)), pg_size_pretty(pg_indexes_size(t)) from (select %s::regclass as t) o",
                    (f"projection_a.{table}",),
                )
            ]
    given.out.write_text(report(given.rows, answers, costs, sizes))  # type: ignore[arg-type]
    slow = [name for name, (seconds, _, _) in answers.items() if seconds >= LIMIT_SECONDS]
    if slow:
        raise SystemExit(f"above {LIMIT_SECONDS:.0f} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
