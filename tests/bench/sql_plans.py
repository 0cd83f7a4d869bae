"""The questions of docs/sql.md over a fleet: each under the index that the page names, none a table read from end to end.

``python -m tests.bench.sql_plans`` starts a Postgres of its own, fills 2 million events and what is projected of them, asks each question as a reader
of one tenant and writes ``results/sql_plans.md``: plans, times, and what each index costs a writer. ``tests/integration/test_sql_page.py`` asserts the
same of a small ledger. Rows are made by ``generate_series``, in the order of time, as ingest would write them.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.bench.point_queries import copying, say, server
from turnledger.store.migrate import migrate
from turnledger.store.roles import Login, create, drop
from turnledger.store.surface import INDEXES

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
OUT = Path(__file__).parent / "results" / "sql_plans.md"
READER = "reader_of_plans"
EVENTS = 2_000_000
DAYS, TENANTS = 30, 10
PER_TURN, PER_SESSION = 20, 400
"""Events of a turn, and of a session; a turn has 2 model calls, 2 tool calls, 4 requests, 2 files."""

AT = "timestamptz '2026-01-01 00:00Z' + {n} * interval '1 day' * {days} / {rows}"
FILL = {
    "ledger.events": (
        20,
        "batch_no, stream_no, seq, kafka_offset, occurred_at, day, type, raw",
        "n / 1000, {session}, n, n, {at}, ledger.today() + (n * 3 / {rows})::int4, 'net.requested', "
        'convert_to(\'{{"session_id":"s","seq":\' || n || \',"type":"net.requested","payload":{{"domain":"host-\' || n % 500 || \'.example"}}}}\', \'UTF8\')',
    ),
    "projection_a.turns": (
        1,
        "session_no, turn_no, turn_key, kind, status, started_at, stop_why, digest",
        "{session}, n, 'turn-' || n, 'live', 'completed', {at}, 'answered', md5(n::text)",
    ),
    "projection_a.model_calls": (
        2,
        "session_no, turn_no, call_key, turn_key, model_call_id, trace_id, provider, model, kind, status, started_at, completed_at, latency_ms, "
        "total_input_tokens, output_tokens, order_key",
        "{session}, n / 2, 'call-' || n, 'turn-' || n / 2, 'c' || n, 'trace-' || n / 3, (array['anthropic','openai'])[1 + n % 2], 'model-' || n % 5, "
        "'live', 'completed', {at}, {at} + interval '2 s', 900, 4000, 300, int8send(n)",
    ),
    "projection_a.tool_calls": (
        2,
        "session_no, turn_no, tool_key, turn_key, call_id, tool_name, origin, status, pairing, requested_at, completed_at, duration_ms, trace_id, kind, "
        "order_key",
        "{session}, n / 2, 'tool-' || n, 'turn-' || n / 2, 'u' || n, 'tool-' || n * 7 % 40, 'native', 'ok', 'paired', {at}, {at} + interval '1 s', 90, "
        "'trace-' || n / 3, 'live', int8send(n)",
    ),
    "projection_a.net_events": (
        4,
        "session_no, stream_no, seq, event_id, occurred_at, kind, domain, port, decision, method, path, status_code, duration_ms",
        "{session}, {session}, n, substr(md5(n::text), 1, 12), {at}, 'live', 'host-' || n * 31 % 500 || '.example', 443, "
        "case n * 17 % 20 when 8 then 'denied' when 9 then 'error' else 'allowed' end, 'GET', '/simple/package-' || n % 1000, 200, 84",
    ),
    "projection_a.fs_events": (
        2,
        "session_no, stream_no, seq, occurred_at, kind, action, path, size",
        "{session}, {session}, n, {at}, 'live', (array['created','modified','modified','deleted'])[1 + n % 4], 'src/file_' || n % 5000 || '.py', n % 65536",
    ),
}
"""(rows of 20 events, columns, values of the n-th row) of each table."""
BIG = frozenset(FILL)


class Question(NamedTuple):
    """A query of the page, and the name that its index ends with."""

    index: str
    statement: str


def questions() -> list[Question]:
    """Those of the page that stand under an index, in its order."""
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("<!-- plans:") : text.index("<!-- end of plans -->")]
    return [
        Question(index, statement.strip().rstrip(";"))
        for index, statement in re.findall(
            r"^By [^`]*`(\w+)`[^\n]*:\n\n```sql\n(.*?)```", part, re.DOTALL | re.MULTILINE
        )
    ]


def fill(link: psycopg.Connection[Any], events: int) -> None:
    """A ledger of so many events over 30 days, with what is projected of them, vacuumed and analysed. The connection is in autocommit."""
    sessions = max(20, events // PER_SESSION)
    link.execute(
        "insert into ledger.sessions (session_no, tenant, session_id, home_topic, home_partition) "
        "select n, 'tenant-' || n %% %s, 'session-' || n, 't', 0 from generate_series(1, %s) n",
        (TENANTS, sessions),
    )
    link.execute(
        "insert into ledger.streams (stream_no, session_no, producer, epoch, stream) select n, n, 'harness', 0, 'ledger' from generate_series(1, %s) n",
        (sessions,),
    )
    for table, (share, names, values) in FILL.items():
        rows = events * share // PER_TURN
        # A session lives for a while: sixteen at a time, one after the other.
        made = values.format(
            at=AT.format(n="n", days=DAYS, rows=rows),
            rows=rows,
            session=f"(1 + (n * {sessions} / {rows} + n % 16) % {sessions})",
        )
        began = time.monotonic()
        link.execute(
            f"insert into {table} ({names}) select {made} from generate_series(0::int8, {rows - 1}) n"
        )  # type: ignore[arg-type]
        say(f"{table}: {rows:,} rows in {time.monotonic() - began:.0f} s")
    for table in (*FILL, "ledger.sessions", "ledger.streams"):
        link.execute(f"vacuum (analyze) {table}")  # type: ignore[arg-type]


@contextmanager
def reader(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a reader of one tenant; its login is dropped afterwards."""
    parts = urlsplit(url)
    with psycopg.connect(url, autocommit=True) as owner:
        create(owner, Login(READER, ("tenant-7",), password="p", statement_seconds=600))
        try:
            netloc = f"{READER}:p@{parts.hostname}:{parts.port}"
            with psycopg.connect(urlunsplit(parts._replace(netloc=netloc)), autocommit=True) as link:
                yield link
        finally:
            drop(owner, READER)


def executed(link: psycopg.Connection[Any], statement: str) -> tuple[set[str], set[str]]:
    """What the plan ran: (indexes, tables that were read from end to end)."""
    ((plan,),) = link.execute(f"explain (analyze, timing off, verbose, format json) {statement}").fetchall()  # type: ignore[arg-type]
    indexes: set[str] = set()
    tables: set[str] = set()

    def walk(node: dict[str, Any]) -> None:
        if node["Actual Loops"] > 0:
            if "Index Name" in node:
                indexes.add(node["Index Name"])
            # A day without events is read at no cost; what is not empty has rows, or has passed over some.
            if (
                node["Node Type"] == "Seq Scan"
                and node["Actual Rows"] + node.get("Rows Removed by Filter", 0) > 0
            ):
                tables.add(f"{node['Schema']}.{node['Relation Name']}")
        for child in node.get("Plans", []):
            walk(child)

    walk(plan[0]["Plan"])
    return indexes, tables


def faults(question: Question, indexes: set[str], tables: set[str]) -> list[str]:
    """What is not as the page says."""
    # The partitions of ledger.events have an index of that name each.
    pattern = re.compile(rf"(events_\d{{8}}_{question.index.removeprefix('events_')}|{question.index})")
    found = (
        []
        if any(pattern.fullmatch(name) for name in indexes)
        else [f"not under {question.index}: {sorted(indexes)}"]
    )
    read = sorted(table for table in tables if table in BIG or table.startswith("ledger.events"))
    return found + [f"reads all of {table}" for table in read]


def asked(link: psycopg.Connection[Any], statement: str) -> tuple[float, int]:
    """(median seconds of five, rows of the answer)."""
    taken = []
    rows = 0
    for _ in range(5):
        began = time.perf_counter()
        rows = len(link.execute(statement).fetchall())  # type: ignore[arg-type]
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), rows


def costs(link: psycopg.Connection[Any]) -> list[tuple[str, str, float]]:
    """(table, index, µs that it adds to a copied row), each beside the indexes that a table had before."""
    found = []
    for table in ("turns", "model_calls", "tool_calls", "net_events", "fs_events"):
        before = link.execute(
            "select indexdef from pg_indexes where schemaname = 'projection_a' and tablename = %s and indexname <> all (%s)",
            (table, [one.name for one in INDEXES]),
        ).fetchall()
        link.execute(f"create temporary table scratch (like projection_a.{table})")  # type: ignore[arg-type]
        copy = copying(link, table)
        for number, (definition,) in enumerate(before):
            link.execute(
                f"create index scratch_{number} on scratch {definition.partition(f' ON projection_a.{table} ')[2]}"
            )  # type: ignore[arg-type]
        copy()
        base = min(copy() for _ in range(5))
        found.append((table, "what it had", base))
        for one in INDEXES:
            if one.table == table:
                link.execute(f"create index scratch_more on scratch {one.how}")  # type: ignore[arg-type]
                found.append((table, one.name, min(copy() for _ in range(5)) - base))
                link.execute("drop index scratch_more")
        link.execute("drop table scratch")
    return found


def main() -> None:
    """Fill, ask, write the page. Exits with 1 where a plan is not what the page of questions says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--url", help="a fresh, empty database instead of a server of its own")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    wrong: list[str] = []
    rows: list[str] = []
    plans: list[str] = []
    with server(given.url) as url:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as owner, reader(url) as link:
            fill(owner, given.events)
            for one in questions():
                indexes, tables = executed(link, one.statement)
                bad = faults(one, indexes, tables)
                wrong += [f"{one.statement}: {fault}" for fault in bad]
                seconds, count = asked(link, one.statement)
                say(f"{one.index}: {seconds * 1000:.1f} ms{'; ' + '; '.join(bad) if bad else ''}")
                flat = " ".join(one.statement.split())
                rows.append(f"| `{flat}` | {one.index} | {seconds * 1000:.1f} | {count:,} |")
                lines = [
                    row[0]
                    for row in link.execute(f"explain (analyze, costs off, timing off) {one.statement}")
                ]  # type: ignore[arg-type]
                plans += ["", f"## {one.index}", "", "```", *lines, "```"]
            paid = costs(owner)
    text = [
        f"# Questions over {given.events:,} events",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, the embedded Postgres with its usual settings; {DAYS} days, {TENANTS} tenants, "
        "asked by a reader of one of them.",
        "",
        "| question | index | median ms | rows |",
        "|---|---|---|---|",
        *rows,
        "",
        "What an index costs a writer: µs a row of a COPY of 100,000 rows into an empty table, beside the indexes that the table had before.",
        "",
        "| table | index | µs a row |",
        "|---|---|---|",
        *(
            f"| {table} | {name} | {cost:{'' if name == 'what it had' else '+'}.2f} |"
            for table, name, cost in paid
        ),
        *plans,
    ]
    given.out.write_text("\n".join(text) + "\n")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
