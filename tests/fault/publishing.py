"""Publishers under fault, through the broker into Postgres: killed with -9 at seeded points, or with a broker that is away for a while.

`python -m tests.fault.publishing [--seeds 200] [--first 0] [--away 60] [--result FILE]` starts a stack of its own, runs both campaigns and judges them
from what Postgres and the topic hold. The tests beside it run a share.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fixtures.harness.consumed import consumed
from tests.integration.ingesting import environment, outcomes, rows, until_applied, until_projected
from tests.stack import databases, servers
from tests.stack.commands import Running
from tests.stack.servers import ROOT, Servers
from tests.stack.topics import Topic, create_topic
from tests.unit.harness.killed import arm, die
from turnledger.devstack import choose
from turnledger.harness import Ledger
from turnledger.harness.outlets import KafkaOutlet

# -- kill -9

POINTS = ("statement", "numbered", "leaving", "arrived", "any moment", "any moment, dropping")
"""Where a publisher dies, by its seed: at an SQL statement, with a number and not stored, with a batch that is about to leave, that the broker has and
the spool does not know of, or at any moment, also while a spool of some events drops and declares."""
MOST_EVENTS = 5000
"""Of one life: it is dead long before."""
SMALL = 2500
"""Bytes of a spool that drops: some events."""


def killed(folder: Path, sink: str, seed: int) -> None:
    """Publish until the seed kills this process. ``returned`` gets a line for each emit that did: epoch, number, content, kept or dropped."""
    chosen = random.Random(seed)
    point = POINTS[seed % len(POINTS)]
    numbered: Callable[[], None] = lambda: None  # noqa: E731
    if point in ("statement", "numbered"):
        numbered = arm(point, chosen.randint(1, 120))
    if point in ("leaving", "arrived"):
        arm_outlet(point, chosen.randint(1, 4))
    dropping = point.endswith("dropping")
    ledger = Ledger(
        session_id=f"k{seed}", sink=sink, spool=folder / "spool", spool_bytes=SMALL if dropping else None
    )
    record = ledger._spooled._numbering.record  # type: ignore[union-attr]

    def with_a_number(*given: Any) -> bytes:
        numbered()
        return record(*given)

    ledger._spooled._numbering.record = with_a_number  # type: ignore[union-attr, method-assign]
    if point.startswith("any moment"):
        threading.Timer(chosen.uniform(0.001, 0.4), die).start()
    publish(ledger, folder, 0, MOST_EVENTS, 0.002)


def publish(ledger: Ledger, folder: Path, life: int, events: int, pause: float) -> None:
    returned = os.open(folder / "returned", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for n in range(events):
        what, before = f"{life}.{n}", ledger.dropped
        seq = ledger.emit("message.recorded", {"role": "user", "text": what})
        fate = "dropped" if ledger.dropped > before else "kept"
        os.write(returned, f"{ledger.epoch} {seq} {what} {fate}\n".encode())
        time.sleep(pause)


def arm_outlet(point: str, count: int) -> None:
    """Die before the ``count``-th batch leaves, or when the broker has it."""
    arrive, left = KafkaOutlet._arrive, [count]

    async def armed(self: KafkaOutlet, *given: Any) -> None:
        left[0] -= 1
        if point == "leaving" and left[0] == 0:
            die()
        await arrive(self, *given)
        if point == "arrived" and left[0] == 0:
            die()

    KafkaOutlet._arrive = armed  # type: ignore[method-assign]


def lives(folder: Path, sink: str, first: int, count: int) -> None:
    """For each seed a process that is killed, and one that continues its spool, publishes some more and closes in peace."""

    def survivor(mine: Path, seed: int) -> None:
        with Ledger(session_id=f"k{seed}", sink=sink, spool=mine / "spool") as ledger:
            publish(ledger, mine, 1, 5, 0)
            ledger.flush(seconds=60)

    for seed in range(first, first + count):
        mine = folder / str(seed)
        mine.mkdir()
        for life in (lambda mine, seed: killed(mine, sink, seed), survivor):
            child = os.fork()
            if child == 0:
                status = 7
                try:
                    life(mine, seed)
                    status = 0
                finally:
                    os._exit(status)
            _, ended = os.waitpid(child, 0)
            fate = "killed" if os.WIFSIGNALED(ended) else f"exit {os.WEXITSTATUS(ended)}"
            print(
                seed,
                POINTS[seed % len(POINTS)] if fate == "killed" else "survivor",
                fate,
                sep="\t",
                flush=True,
            )


@dataclass
class Kills:
    """What became of a campaign."""

    points: Counter[str] = field(default_factory=Counter)
    returned: int = 0
    dropped: int = 0
    declared: int = 0
    records: int = 0
    events: int = 0
    stored_unanswered: int = 0
    seconds: float = 0.0


def kill_campaign(
    topic: Topic, database: str, worker: Running, folder: Path, *, first: int, seeds: int
) -> Kills:
    """Run the seeds and judge them; an ``AssertionError`` names the seed that broke what must hold."""
    began = time.monotonic()
    sink = f"kafka://{topic.bootstrap}/{topic.name}"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.fault.publishing",
            "--lives",
            str(folder),
            sink,
            str(first),
            str(seeds),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60 + 10 * seeds,
    )
    assert done.returncode == 0, done.stderr
    kills = Kills()
    fates = [line.split("\t") for line in done.stdout.splitlines()]
    for at, seed in enumerate(range(first, first + seeds)):
        point = POINTS[seed % len(POINTS)]
        assert fates[2 * at] == [str(seed), point, "killed"], (fates[2 * at], done.stderr)
        assert fates[2 * at + 1] == [str(seed), "survivor", "exit 0"], (fates[2 * at + 1], done.stderr)
        kills.points[point] += 1
    kills.records = len(consumed(topic))
    until_applied(database, topic, kills.records, worker, seconds=120)
    until_projected(database, topic)
    judge(database, topic, folder, range(first, first + seeds), kills)
    kills.seconds = time.monotonic() - began
    return kills


def judge(database: str, topic: Topic, folder: Path, seeds: range, kills: Kills) -> None:
    """Everything that ``emit`` returned for is in Postgres once, as it was; what is not there is declared, and nothing else is."""
    told = outcomes(database, topic)
    assert (told["conflicts"], told["dead"]) == (0, 0), (
        "a number was given to two contents, or a record was broken"
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for (raw,) in rows(database, "select raw from ledger.events"):
        event = json.loads(raw)
        found.setdefault(event["session_id"], []).append(event)
    holes: dict[str, list[tuple[int, int, str]]] = {}
    for session, low, high, state in rows(
        database, "select session_id, from_seq, to_seq, state from turnledger.gaps where state <> 'withdrawn'"
    ):
        holes.setdefault(session, []).append((low, high, state))
    for seed in seeds:
        events = found[f"k{seed}"]
        carried = {event["seq"]: event["payload"].get("text") for event in events}
        assert len(carried) == len(events), f"seed {seed}: a number stands twice"
        assert len({event["epoch"] for event in events}) == 1, f"seed {seed}: the epoch was not continued"
        lost = {
            seq
            for event in events
            if event["type"] == "stream.lost"
            for seq in range(event["payload"]["from_seq"], event["payload"]["to_seq"] + 1)
        }
        assert sorted([*carried, *lost]) == list(range(max(carried) + 1)), (
            f"seed {seed}: a hole nobody declared"
        )
        shown = {seq for low, high, _ in holes.get(f"k{seed}", []) for seq in range(low, high + 1)}
        states = {state for *_, state in holes.get(f"k{seed}", []) if state != "filled_late"}
        assert lost <= shown and states <= {"declared_lost"}, f"seed {seed}: {holes.get(f'k{seed}')}"
        returned = [line.split() for line in (folder / str(seed) / "returned").read_text().splitlines()]
        for _, seq, what, fate in returned:
            if fate == "kept":
                assert carried.get(int(seq)) == what, f"seed {seed}: emit returned for {seq} ({what})"
            else:
                assert int(seq) in lost, f"seed {seed}: {seq} was dropped and is not declared"
        kept = sum(fate == "kept" for *_, fate in returned)
        # Beside what was answered for: at most the one event that was stored, or dropped, when the process died.
        unanswered = sum(text is not None for text in carried.values()) - kept
        assert 0 <= unanswered <= 1 and 0 <= len(lost) - (len(returned) - kept) <= 1, f"seed {seed}"
        kills.returned += len(returned)
        kills.dropped += len(returned) - kept
        kills.declared += len(lost)
        kills.events += len(events)
        kills.stored_unanswered += unanswered


# -- a broker that is away

PAD = "p" * 8000
RATE = 200
"""Events a second, of each of two streams."""


def emitting(folder: Path, sink: str) -> None:
    """Two publishers that emit until standard input ends, answering ``mark`` with their counts and this process's memory, then flush."""
    ledgers = [Ledger(session_id=f"a{n}", sink=sink, spool=folder / f"{n}") for n in range(2)]
    going, emitted, longest = threading.Event(), [0, 0], [0.0, 0.0]

    def emit(n: int) -> None:
        while not going.wait(1 / RATE):
            began = time.perf_counter()
            ledgers[n].emit("message.recorded", {"role": "user", "text": str(emitted[n]), "pad": PAD})
            longest[n] = max(longest[n], time.perf_counter() - began)
            emitted[n] += 1

    def tell() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        waiting = sum(ledger._spooled.waiting() for ledger in ledgers)  # type: ignore[union-attr]
        memory = pages * resource.getpagesize()
        print(
            json.dumps({"emitted": emitted, "longest": max(longest), "memory": memory, "waiting": waiting}),
            flush=True,
        )

    threads = [threading.Thread(target=emit, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for _ in sys.stdin:
        tell()
    going.set()
    for thread in threads:
        thread.join()
    for ledger in ledgers:
        ledger.flush(seconds=120)
    tell()
    for ledger in ledgers:
        ledger.close()


@dataclass
class Away:
    """What a broker that was away cost. Bytes and seconds."""

    seconds: float
    emitted: int
    while_away: int
    spooled: int
    memory_before: int
    memory_at_most: int
    longest_emit: float
    records: int
    catching_up: float


def away_campaign(stack: Servers, topic: Topic, folder: Path, seconds: float) -> Away:
    """Stop the broker under two publishers, start it again, and judge what the topic holds."""
    command = [
        sys.executable,
        "-m",
        "tests.fault.publishing",
        "--emitting",
        str(folder),
        f"kafka://{topic.bootstrap}/{topic.name}",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None

    def mark() -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("mark\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    try:
        time.sleep(3)
        stack.kafka.stop()
        try:
            before = mark()
            memory = 0
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(min(1.0, seconds / 4))
                last = mark()
                memory = max(memory, last["memory"])
        finally:
            stack.kafka.start()
        back = time.monotonic()
        time.sleep(1)
        process.stdin.close()
        told = json.loads(process.stdout.readline())
        assert process.wait(timeout=150) == 0
        caught_up = time.monotonic() - back
    finally:
        process.kill()
    firsts: dict[str, dict[int, str]] = {}
    records = consumed(topic)
    for record in records:
        event = json.loads(record.value)
        firsts.setdefault(event["session_id"], {}).setdefault(event["seq"], event["payload"]["text"])
    for n, count in enumerate(told["emitted"]):
        # In the order in which they first came: each number once, none left out, with what it was given for.
        assert list(firsts[f"a{n}"].items()) == [(seq, str(seq)) for seq in range(count)], f"stream {n}"
    return Away(
        seconds=seconds, emitted=sum(told["emitted"]), while_away=sum(last["emitted"]) - sum(before["emitted"]),
        spooled=last["waiting"], memory_before=before["memory"], memory_at_most=memory, longest_emit=told["longest"],
        records=len(records), catching_up=caught_up,
    )  # fmt: skip


# -- both, in full

REPORT = """# Publishers under fault, {day}

`python -m tests.fault.publishing --seeds {seeds} --away {away.seconds:.0f}`: {cores} shared cores, {machine}, Python {python};
a broker and a database of the run's own.

## kill -9 at {seeds} seeded points

Each seed kills one publishing process at a point of its own and lets a second one continue its spool. The worker writes
what came into Postgres, and that is judged.

| killed | times |
|---|---|
{points}

- `emit` returned for {kills.returned:,} events; {kills.dropped:,} of them were dropped by a spool of {small:,} bytes, each declared.
- In Postgres: {kills.events:,} events, each number of each stream once, with the content that `emit` returned for.
- {kills.records:,} records came through the topic: {again:,} came twice and were counted as duplicates.
- No conflict, no dead letter, no gap but the {kills.declared:,} numbers that `stream.lost` names.
- {kills.stored_unanswered:,} events were stored, and their process died before `emit` could answer.
- {kills.seconds:.0f} s in all.

## A broker that is away for {away.seconds:.0f} s

Two publishers of up to {rate} events a second each, 8 KB an event.

- {away.while_away:,} events were emitted while the broker was away; {away.spooled:,} waited in the spools at its end.
- Memory of the process: {before:.1f} MB when the broker went, {most:.1f} MB at most until it was back.
- The longest `emit` took {away.longest_emit:.3f} s, on shared cores.
- {away.catching_up:.1f} s after the broker's start everything had arrived: {away.emitted:,} events in the order of their numbers,
  none left out; {away.records:,} records.
"""


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.publishing")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--away", type=float, default=60)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--lives", nargs=4)
    parser.add_argument("--emitting", nargs=2)
    given = parser.parse_args()
    if given.lives:
        folder, sink, first, count = given.lives
        lives(Path(folder), sink, int(first), int(count))
        return 0
    if given.emitting:
        emitting(Path(given.emitting[0]), given.emitting[1])
        return 0
    stack = servers.provide(choose())
    try:
        template = databases.migrated_template(stack.database_url)
        database = databases.create(stack.database_url, template=template)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            topic = create_topic(stack.kafka_bootstrap, 4)
            worker = Running(("worker",), environment(topic, database), folder / "worker.log")
            try:
                (folder / "kills").mkdir()
                kills = kill_campaign(
                    topic, database, worker, folder / "kills", first=given.first, seeds=given.seeds
                )
            finally:
                worker.kill9()
            print(kills, flush=True)
            (folder / "away").mkdir()
            away = away_campaign(stack, create_topic(stack.kafka_bootstrap, 4), folder / "away", given.away)
            print(away, flush=True)
    finally:
        stack.close()
    report = REPORT.format(
        day=time.strftime("%Y-%m-%d"), seeds=given.seeds, kills=kills, away=away, small=SMALL, rate=RATE,
        cores=os.cpu_count(), machine=platform.machine(), python=platform.python_version(),
        points="\n".join(f"| {point} | {kills.points[point]} |" for point in POINTS),
        again=kills.records - kills.events, before=away.memory_before / 1e6, most=away.memory_at_most / 1e6,
    )  # fmt: skip
    print(report)
    if given.result is not None:
        given.result.write_text(report)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise SystemExit(main())
