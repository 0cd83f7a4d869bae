"""``make bench``: turnledger's worker beside the floor and beside stock Faust, in one run, interleaved, medians.

(a) the floor (``floor.py``), (b) stock Faust's per-event agent that does nothing, (c) ``turnledger worker`` with everything on, each a process of its own that
drains the same topic; (c2) the same worker as two processes, which is another thing than (c) and has columns of its own; (d) ``turnledger replay topics`` of
records that nobody has read, into an empty ledger.
Also: latency at half load, 10 against 100 partitions, 100 thousand against millions of stored events, and rolling up (``rollups.py``, some minutes).
Absolute figures belong to the machine; the ratios inside one run are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from psycopg.conninfo import make_conninfo

from tests.bench import rollups
from tests.bench.generate import Record, records
from tests.bench.stack import stack
from turnledger.store.migrate import migrate

HERE = Path(__file__).parent
ROUND = {"backlog": 5000, "fanout": 1000}
PARTITIONS = 10
SHARED_TO = 0.85
"""Of a topic's events: so far are several processes measured together."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"bench: {text}", flush=True)


async def fill(bootstrap: str, topic: str, partitions: int, load: Iterable[Record]) -> int:
    """Create a topic and produce the load into it; the number of records."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=20,
        max_batch_size=1 << 18,
    )
    await producer.start()
    count = 0
    try:
        for record in load:
            await producer.send(topic, record.value, key=record.key)
            count += 1
        await producer.flush()
    finally:
        await producer.stop()
    return count


def fresh_database(url: str, name: str) -> str:
    """An empty database of this name; its address."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f'drop database if exists "{name}" with (force)')  # type: ignore[arg-type]
        conn.execute(f'create database "{name}"')  # type: ignore[arg-type]
    return make_conninfo(url, dbname=name)


@dataclass(slots=True)
class Worker:
    """A running ``turnledger worker`` and what it is measured by."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """SIGTERM, then wait."""
        self.process.terminate()
        self.process.wait(timeout=60)


def worker_command(processes: int = 1) -> tuple[str, ...]:
    """``turnledger worker`` with everything on."""
    return ("worker", "--processes", str(processes), "--health-port", "0")


BACKFILL = ("replay", "topics", "--by", "bench", "--json")


def start_worker(
    bootstrap: str,
    topic: str,
    dsn: str,
    round_events: int = ROUND["backlog"],
    arguments: tuple[str, ...] = worker_command(),
) -> Worker:
    """A command that applies events, as a person would start it but for the size of its rounds."""
    log = Path(tempfile.mkstemp(prefix="turnledger-bench-", suffix=".log")[1])
    env = os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap,
        "TURNLEDGER_DATABASE_URL": dsn,
        "TURNLEDGER_TOPIC": topic,
        "TURNLEDGER_GROUP_ID": f"bench-{time.time_ns()}",
        "TURNLEDGER_ROUND_EVENTS": str(round_events),
    }
    command = [sys.executable, "-c", "from turnledger.cli import main; main()", *arguments]
    with log.open("wb") as out:
        return Worker(subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True), log)


def _progress(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("select coalesce(sum(next_offset), 0)::bigint from ledger.ingest_progress").fetchone()
    return int(row[0]) if row else 0


def _owners(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("select count(distinct owner) from ledger.ingest_progress").fetchone()
    return int(row[0]) if row else 0


def _family(pid: int) -> list[psutil.Process]:
    """A worker and, where it is several processes, those."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu(family: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in family)


def _backend_cpu(conn: psycopg.Connection[Any]) -> float:
    rows = conn.execute(
        "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    ).fetchall()
    total = 0.0
    for (pid,) in rows:
        times = psutil.Process(pid).cpu_times()
        total += times.user + times.system
    return total


def drain(
    bootstrap: str,
    topic: str,
    dsn: str,
    total: int,
    marks: tuple[int, ...] = (),
    round_events: int = ROUND["backlog"],
    processes: int = 1,
    backfill: bool = False,
) -> dict[str, Any]:
    """Start a worker on a full topic, or a replay (``backfill``), and wait until all of it is committed.

    Seconds count from the first commit that is seen, for the events after it: joining the group is not measured. With several
    ``processes`` from when each of them has partitions, since until then one works and the others join, to ``SHARED_TO`` of all, since their shares
    are not equal and one works alone at the end; CPU and memory are of all of them.
    """
    arguments = BACKFILL if backfill else worker_command(processes)
    worker = start_worker(bootstrap, topic, dsn, round_events, arguments)
    try:
        with psycopg.connect(dsn, autocommit=True) as conn:
            family: list[psutil.Process] = []
            first = last = measured = 0
            start = cpu = backend = seconds = 0.0
            to = total if processes == 1 else round(SHARED_TO * total)
            passed: list[tuple[int, float]] = []
            deadline = time.monotonic() + 60 + total / 2000
            while last < total:
                # A replay ends by itself once all is committed.
                over = worker.process.poll() is not None or time.monotonic() > deadline
                last = _progress(conn)
                if over and last < total:
                    raise RuntimeError(
                        f"the worker stopped at {last} of {total}:\n{worker.log.read_text()[-4000:]}"
                    )
                now = time.perf_counter()
                if not first and last and (processes == 1 or _owners(conn) >= processes):
                    family = _family(worker.process.pid)
                    first, start = last, now
                    cpu = _cpu(family)
                    backend = _backend_cpu(conn)
                if first and not measured and last >= to:
                    measured, seconds = last, now - start
                    cpu, backend = _cpu(family) - cpu, _backend_cpu(conn) - backend
                if len(passed) < len(marks) and last >= marks[len(passed)]:
                    passed.append((last, now - start))
                time.sleep(0.02)
            if not first or first >= to:
                raise RuntimeError(
                    f"nothing of {total} events was left to measure once all of {processes} had partitions: give more --events"
                )
            result: dict[str, Any] = {
                "events": measured - first,
                "seconds": seconds,
                "worker_cpu": cpu,
                "backend_cpu": backend,
                "peak_mib": sum(_peak(process.pid) for process in family),
                "passed": [(n - first, s) for n, s in passed],
            }
            rows = conn.execute(
                "select coalesce(sum(accepted), 0)::bigint from ledger.ingest_batches"
            ).fetchone()
            assert rows is not None and rows[0] == total, (rows, total)
        if backfill and worker.process.wait(timeout=120):
            raise RuntimeError(f"the replay failed:\n{worker.log.read_text()[-4000:]}")
        return result
    finally:
        worker.stop()


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def floor(bootstrap: str, topic: str, dsn: str, size: int) -> dict[str, Any]:
    """Run (a) in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.floor", bootstrap, topic, dsn, "--round", str(size)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=HERE.parent.parent)
    if out.returncode:
        raise RuntimeError(f"the floor failed: {out.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return result


def stock(bootstrap: str, topic: str, total: int) -> dict[str, Any]:
    """Run (b) in a process of its own."""
    env = os.environ | {"BENCH_BOOTSTRAP": bootstrap, "BENCH_TOPIC": topic, "BENCH_TOTAL": str(total)}
    command = [sys.executable, "-m", "tests.bench.stock_faust", "worker", "--without-web", "-l", "error"]
    out = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=HERE.parent.parent, env=env
    )
    lines = [line for line in out.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"stock Faust said nothing: {out.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def us(result: dict[str, Any], key: str = "seconds") -> float:
    """Microseconds an event."""
    return float(result[key]) / float(result["events"]) * 1e6


async def latency(bootstrap: str, topic: str, dsn: str, rate: float, seconds: float) -> dict[str, Any]:
    """Emit at a steady rate; ms from emit to the committed event, and from a turn's end to its row."""
    await fill(bootstrap, topic, PARTITIONS, ())
    worker = start_worker(bootstrap, topic, dsn)
    emitted: dict[tuple[int, int], float] = {}
    ended: dict[tuple[str, str], float] = {}
    lock, stop = threading.Lock(), threading.Event()
    event_ms: list[float] = []
    turn_ms: list[float] = []

    def watch_events() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not stop.is_set():
                progress = dict(
                    conn.execute("select partition, next_offset from ledger.ingest_progress").fetchall()
                )
                now = time.perf_counter()
                with lock:
                    for place in [p for p in emitted if p[1] < progress.get(p[0], 0)]:
                        event_ms.append((now - emitted.pop(place)) * 1e3)
                time.sleep(0.005)

    def watch_turns() -> None:
        sql = (
            "select s.session_id, t.turn_id from unnest(%s::text[], %s::text[]) as w(session_id, turn_id)"
            " join ledger.sessions s on s.tenant = 'acme' and s.session_id = w.session_id"
            " join projection_a.turns t on t.session_no = s.session_no and t.turn_id = w.turn_id where t.status <> 'open'"
        )
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not stop.is_set():
                with lock:
                    waiting = list(ended)[:300]
                if waiting:
                    rows = conn.execute(sql, ([s for s, _ in waiting], [t for _, t in waiting])).fetchall()
                    now = time.perf_counter()
                    with lock:
                        for session, turn in rows:
                            turn_ms.append((now - ended.pop((session, turn))) * 1e3)
                time.sleep(0.01)

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=5,
        max_batch_size=1 << 17,
    )
    await producer.start()
    watchers = [threading.Thread(target=watch_events), threading.Thread(target=watch_turns)]
    try:
        load = records("backlog", int(rate * (seconds + 8)), seed=11, prefix="latency")
        warm = [next(load) for _ in range(2000)]
        for record in warm:
            await producer.send(topic, record.value, key=record.key)
        await producer.flush()
        with psycopg.connect(dsn, autocommit=True) as conn:
            deadline = time.monotonic() + 60
            while _progress(conn) < len(warm):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the worker did not start:\n{worker.log.read_text()[-4000:]}")
                await asyncio.sleep(0.1)
        for watcher in watchers:
            watcher.start()

        def note(future: asyncio.Future[Any], at: float, ends: tuple[str, str] | None) -> None:
            meta = future.result()
            with lock:
                emitted[(meta.partition, meta.offset)] = at
                if ends:
                    ended[ends] = at

        begin, sent, turns = time.perf_counter(), 0, 0
        while (elapsed := time.perf_counter() - begin) < seconds:
            due = int(elapsed * rate)
            while sent < due:
                record = next(load)
                now = time.perf_counter()
                future = await producer.send(topic, record.value, key=record.key)
                turns += record.ends_turn is not None
                sampled_turn = record.ends_turn if turns % 4 == 0 else None
                if sent % 40 == 0 or sampled_turn:
                    future.add_done_callback(lambda f, at=now, ends=sampled_turn: note(f, at, ends))
                sent += 1
            await asyncio.sleep(0.002)
        await producer.flush()
        deadline = time.monotonic() + 60
        while (emitted or ended) and time.monotonic() < deadline:  # noqa: ASYNC110 - filled by threads
            await asyncio.sleep(0.1)
        left = len(emitted) + len(ended)
    finally:
        stop.set()
        for watcher in watchers:
            if watcher.ident:
                watcher.join()
        await producer.stop()
        worker.stop()
    if left:
        raise RuntimeError(f"{left} samples never became visible")

    def spread(values: list[float]) -> dict[str, float]:
        cuts = statistics.quantiles(values, n=100)
        return {"p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1), "samples": len(values)}

    return {"rate": round(rate), "event": spread(event_ms), "turn": spread(turn_ms)}


def compare(stack: Any, shape: str, events: int, repeats: int, with_stock: bool) -> dict[str, Any]:
    """(a), (b), (c), (c2) and (d) over one topic, interleaved."""
    topic = f"bench.{shape}"
    total = asyncio.run(fill(stack.kafka_bootstrap, topic, PARTITIONS, records(shape, events)))
    say(f"{shape}: {total} events in {PARTITIONS} partitions")
    runs: dict[str, list[dict[str, Any]]] = {"a": [], "b": [], "c": [], "c2": [], "d": []}
    for turn in range(repeats):
        runs["a"].append(
            floor(
                stack.kafka_bootstrap, topic, fresh_database(stack.database_url, "bench_floor"), ROUND[shape]
            )
        )
        dsn = fresh_database(stack.database_url, "bench_worker")
        migrate(dsn)
        runs["c"].append(drain(stack.kafka_bootstrap, topic, dsn, total, round_events=ROUND[shape]))
        dsn = fresh_database(stack.database_url, "bench_worker")
        migrate(dsn)
        runs["c2"].append(
            drain(stack.kafka_bootstrap, topic, dsn, total, round_events=ROUND[shape], processes=2)
        )
        dsn = fresh_database(stack.database_url, "bench_worker")
        migrate(dsn)
        runs["d"].append(
            drain(stack.kafka_bootstrap, topic, dsn, total, round_events=ROUND[shape], backfill=True)
        )
        if with_stock:
            runs["b"].append(stock(stack.kafka_bootstrap, topic, total))
        line = "  ".join(f"{name} {us(found[-1]):6.1f}" for name, found in runs.items() if found)
        say(f"{shape} run {turn + 1}: µs an event: {line}")

    def median(name: str, key: str = "seconds") -> float:
        return statistics.median(us(r, key) for r in runs[name])

    a, c, c2, d = median("a"), median("c"), median("c2"), median("d")
    result: dict[str, Any] = {
        "events": total,
        "a_us": a,
        "c_us": c,
        "c_over_a": a / c,
        "a_worker_cpu_us": median("a", "worker_cpu"),
        "a_backend_cpu_us": median("a", "backend_cpu"),
        "c_worker_cpu_us": median("c", "worker_cpu"),
        "c_backend_cpu_us": median("c", "backend_cpu"),
        "c_events_per_second": 1e6 / c,
        "c_peak_mib": statistics.median(r["peak_mib"] for r in runs["c"]),
        "c2_processes": 2,
        "c2_us": c2,
        "c2_over_a": a / c2,
        "c2_over_c": c / c2,
        "c2_worker_cpu_us": median("c2", "worker_cpu"),
        "c2_backend_cpu_us": median("c2", "backend_cpu"),
        "c2_events_per_second": 1e6 / c2,
        "c2_peak_mib": statistics.median(r["peak_mib"] for r in runs["c2"]),
        "d_us": d,
        "d_over_c": c / d,
        "d_worker_cpu_us": median("d", "worker_cpu"),
        "d_events_per_second": 1e6 / d,
        "d_peak_mib": statistics.median(r["peak_mib"] for r in runs["d"]),
    }
    if with_stock:
        result |= {"b_us": median("b"), "c_over_b": median("b") / c}
    return result


def growth(stack: Any, stored: int) -> dict[str, Any]:
    """Does an event cost more with more partitions, or with more events stored before it?"""
    out: dict[str, Any] = {}
    slice_ = max(50_000, min(100_000, stored // 4))
    for partitions in (10, 100):
        topic = f"bench.p{partitions}"
        total = asyncio.run(
            fill(stack.kafka_bootstrap, topic, partitions, records("backlog", slice_, seed=23))
        )
        dsn = fresh_database(stack.database_url, "bench_worker")
        migrate(dsn)
        out[f"partitions_{partitions}_us"] = us(drain(stack.kafka_bootstrap, topic, dsn, total))
        say(f"{partitions} partitions: {out[f'partitions_{partitions}_us']:.1f} µs an event")
    topic = "bench.long"

    # In sessions that go on: what a worker keeps of each would show too.
    load = records("backlog", stored, seed=100, prefix="long")
    total = asyncio.run(fill(stack.kafka_bootstrap, topic, PARTITIONS, load))
    dsn = fresh_database(stack.database_url, "bench_worker")
    migrate(dsn)
    first, last = slice_, total - slice_
    result = drain(stack.kafka_bootstrap, topic, dsn, total, (first, last))
    (n1, s1), (n2, s2) = result["passed"]
    out["stored_events"] = total
    out["first_us"] = s1 / max(1, n1) * 1e6
    out["last_us"] = (result["seconds"] - s2) / max(1, result["events"] - n2) * 1e6
    out["long_run_peak_mib"] = result["peak_mib"]
    say(f"first {slice_} events {out['first_us']:.1f} µs, last of {total} {out['last_us']:.1f} µs an event")
    return out


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = [f"# Bench, {report['at']}", "", f"{report['machine']}", ""]
    lines += [
        "| shape | a floor µs | b stock Faust µs | c turnledger µs | c/a | c/b | c worker CPU | c backend CPU | events/s | peak MiB |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for shape, r in report["shapes"].items():
        b = f"{r['b_us']:.1f}" if "b_us" in r else "–"
        cb = f"{r['c_over_b']:.1f}" if "b_us" in r else "–"
        lines.append(
            f"| {shape} | {r['a_us']:.1f} | {b} | {r['c_us']:.1f} | {r['c_over_a']:.2f} | {cb} | {r['c_worker_cpu_us']:.1f} |"
            f" {r['c_backend_cpu_us']:.1f} | {r['c_events_per_second']:.0f} | {r['c_peak_mib']:.0f} |"
        )
    lines += ["", "c/a and c/b are rates: 0.5 means half the floor's events a second.", ""]
    lines += [
        "Two processes (`worker --processes 2`), from when both have partitions to 85 % of the events; CPU and memory of both together. "
        "Not the figure of one worker, which is c:",
        "",
        "| shape | c2 two processes µs | c2/a | c2/c | c2 worker CPU | c2 backend CPU | events/s | peak MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {shape} | {r['c2_us']:.1f} | {r['c2_over_a']:.2f} | {r['c2_over_c']:.2f} | {r['c2_worker_cpu_us']:.1f} |"
        f" {r['c2_backend_cpu_us']:.1f} | {r['c2_events_per_second']:.0f} | {r['c2_peak_mib']:.0f} |"
        for shape, r in report["shapes"].items()
    ]
    lines += [
        "",
        "Backfill: `replay topics` of the same records into an empty ledger, measured as c is; d/c is 1 where it keeps the live rate:",
        "",
        "| shape | d replay µs | d/c | d CPU | events/s | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {shape} | {r['d_us']:.1f} | {r['d_over_c']:.2f} | {r['d_worker_cpu_us']:.1f} | {r['d_events_per_second']:.0f} | {r['d_peak_mib']:.0f} |"
        for shape, r in report["shapes"].items()
    ]
    lines.append("")
    if "latency" in report:
        found = report["latency"]
        lines += [
            f"Latency at half load ({found['rate']} events/s): emit to committed event p50 {found['event']['p50_ms']} ms, p99 {found['event']['p99_ms']} ms; "
            f"turn's end to its row p50 {found['turn']['p50_ms']} ms, p99 {found['turn']['p99_ms']} ms.",
            "",
        ]
    if "rollups" in report:
        lines += ["Rolling up:", "", *rollups.lines_of(report["rollups"])]
    if "growth" in report:
        g = report["growth"]
        lines += [
            f"10 partitions {g['partitions_10_us']:.1f} µs, 100 partitions {g['partitions_100_us']:.1f} µs an event; "
            f"with few events stored {g['first_us']:.1f} µs, with {g['stored_events']} {g['last_us']:.1f} µs; peak {g['long_run_peak_mib']:.0f} MiB.",
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    """Run what was asked for and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=140_000, help="events of each shape")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stored", type=int, default=2_000_000, help="length of the long run")
    parser.add_argument("--shapes", default="backlog,fanout")
    parser.add_argument("--only", default="shapes,latency,growth,rollups")
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "bench.json")
    args = parser.parse_args()
    only = set(args.only.split(","))
    report: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, loopback broker and database, 735–960-byte events, lz4",
        "shapes": {},
    }
    say("starting a stack of its own")
    with stack() as addresses:
        rate = 20_000.0
        if "shapes" in only:
            for shape in args.shapes.split(","):
                report["shapes"][shape] = compare(
                    addresses, shape, args.events, args.repeats, not args.no_stock
                )
                rate = report["shapes"][shape]["c_events_per_second"] if shape == "backlog" else rate
        if "latency" in only:
            dsn = fresh_database(addresses.database_url, "bench_latency")
            migrate(dsn)
            report["latency"] = asyncio.run(
                latency(addresses.kafka_bootstrap, "bench.latency", dsn, rate / 2, 15)
            )
            say(f"latency: {report['latency']}")
        if "growth" in only:
            report["growth"] = growth(addresses, args.stored)
        if "rollups" in only:
            dsn = fresh_database(addresses.database_url, "bench_rollups")
            migrate(dsn)
            report["rollups"] = rollups.measure(dsn, 10_000, (20_000, 200_000), (1, 4))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(table(report) + "\n")
    print(table(report))
    say(f"done; kept in {args.out.name} and {args.out.with_suffix('.md').name}")


if __name__ == "__main__":
    main()
