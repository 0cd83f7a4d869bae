"""`ship` under fault: killed with -9 at seeded points while the files of several harnesses grow, are cut, moved, replaced and written anew in place.

`python -m tests.fault.shipping [--seeds 100] [--first 0] [--kafka 10] [--result FILE]` runs the campaign; of its seeds the first ``--kafka`` ship into a
broker of the run's own, the others into a file. The test beside it runs a share.

A seed has two lives that are killed, one while the harnesses write and one when they have ended, and a third that tells the rest and ends by SIGTERM. Then
what arrived is laid beside one import of the files as they are.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fixtures.harness import goldens
from tests.fixtures.harness.consumed import consumed
from tests.fixtures.harness.shipping import fold, imported
from tests.property.test_harness_copies import GROWING, of_rows, size
from tests.stack import servers
from tests.stack.topics import Topic, create_topic
from tests.unit.harness.killed import die
from turnledger.contract.redact import Redactor
from turnledger.devstack import choose
from turnledger.harness.outlets import outlet, parse
from turnledger.ship import discovery, reading, roll, service, standing, state
from turnledger.ship.reading import Choices, Reading
from turnledger.ship.settings import ShipSettings
from turnledger.ship.state import State
from turnledger.ship.way import Way

LINES = (
    "claude_code/conversation.jsonl", "codex/rollout.jsonl", "qwen_code/chat.jsonl",
    "copilot_cli/events.jsonl", "pi/session.jsonl", "deepseek_harness/session.v3.jsonl",
)  # fmt: skip
"""Files of lines that name their own session, so that they may be called anything."""
WHOLES = (
    "gemini_cli/rewrite-3.json",
    "swe_agent/run.traj",
    "cline/1772000000000/ui_messages.json",
    "opencode/database.sql",
    "capsem/vm-7/session.sql",
)
"""Documents that are written as a whole each time, and databases."""
WAYS = ("grows", "cut", "moved", "replaced", "written in place", "rotated")
"""What becomes of a file of lines on its way: nothing, cut and told on from there, another name, another file of the same content under its name, the same
file written from its beginning, another name and another session's file in its place."""
POINTS = ("opened", "leaving", "arrived", "statement", "confirmed", "any moment")
"""Where a process dies: with a file open, with a batch that is about to leave or that the sink has, at an SQL statement of the state, with a batch that
is kept, or at any moment."""
KILLS, LANES = 2, 2
ROWS = 5
"""Events of a batch here: what may come twice for each kill and lane."""
SETTLE = 0.4
NEVER = 600.0
LIFE_SECONDS = 20.0
"""A point that is not reached by then is a kill at any moment."""


# -- the harnesses


def content_of(name: str) -> bytes:
    return goldens.content(name)


def grown(path: Path, content: bytes, way: str, dice: random.Random) -> Iterator[Path]:
    """One file of lines being written by somebody who holds it open, a piece at a time; where it stands now."""
    turn = dice.randrange(len(content) // 4, 3 * len(content) // 4)
    file = path.open("ab")
    at = 0
    while at < len(content):
        more = min(dice.randrange(1, len(content) // 3), len(content) - at)
        file.write(content[at : at + more])
        file.flush()
        at += more
        yield path
        if not turn or at < turn:
            continue
        turn = 0
        if way in ("moved", "rotated"):
            path = path.rename(path.with_name(f"moved-{path.name}"))
        elif way == "cut":
            at = content.rfind(b"\n", 0, dice.randrange(at)) + 1
            os.ftruncate(file.fileno(), at)
        elif way == "replaced":
            file.close()
            beside = path.with_name(f"{path.name}.new")
            beside.write_bytes(content[:at])
            beside.replace(path)
            file = path.open("ab")
        elif way == "written in place":
            file.close()
            file = path.open("wb")  # the next piece is all of it
            at = 0
        yield path
    file.close()


def written(path: Path, name: str) -> Iterator[Path]:
    """A document that is written as a whole each time, or a database of rows."""
    piece, least = GROWING[name]
    if piece is of_rows:
        script = (goldens.FOLDER / name).read_text().splitlines()
        steps = ["\n".join(line for line in script if line.startswith("CREATE"))]
        steps += [line for line in script if line.startswith("INSERT")]
        for step in steps:
            with sqlite3.connect(path, isolation_level=None) as db:  # not open when a process is forked
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(step)
            db.close()
            yield path
        return
    for end in range(least, size(name, piece)):
        path.write_bytes(piece(name, 0, end))
        yield path
    path.write_bytes(content_of(name))
    yield path


def at_work(root: Path, dice: random.Random) -> Iterator[None]:
    """Five harnesses or more, a step of one of them at a time; no session is in two files."""
    lines, wholes = dice.sample(LINES, 6), dice.sample(WHOLES, 2)
    lines, others = lines[:3], lines[3:]
    going: list[Iterator[Path]] = []
    for name in lines:
        path = place(root, name)
        way = dice.choice(WAYS)
        going.append(grown(path, content_of(name), way, dice))
        if way == "rotated":
            going.append(in_its_place(path, content_of(others.pop()), dice))
    going += [written(place(root, name), name) for name in wholes]
    while going:
        each = dice.choice(going)
        if next(each, None) is None:
            going.remove(each)
        yield


def in_its_place(path: Path, content: bytes, dice: random.Random) -> Iterator[Path]:
    """Another session's file under a name that was given up."""
    while path.exists() or not path.with_name(f"moved-{path.name}").exists():
        yield path
    yield from grown(path, content, "grows", dice)


def place(root: Path, name: str) -> Path:
    path = root / name
    path = path.with_suffix(".db") if name.endswith(".sql") else path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# -- the lives


def life(
    root: Path, home: Path, sink: str, settle: float, point: str | None, count: int, seconds: float
) -> None:
    """Ship until the point, or until SIGTERM. Everything is a little faster than it is."""
    reading.ROWS, roll.AFTER_CHANGE, discovery.GROUPED_MS = ROWS, 0.02, 60
    if point is not None:
        arm(point, count, seconds)
    settings = ShipSettings(
        ship_state=str(home),
        ship_settle_seconds=settle,
        ship_scan_seconds=0.5,
        ship_poll_seconds=0.2,
        ship_health_port=0,
    )
    made = parse(sink)
    service.run(
        [root],
        lambda: outlet(made),
        sink,
        settings=settings,
        redactor=Redactor(bodies=False),
        choices=Choices(),
        told_by_system=True,
    )


def arm(point: str, count: int, seconds: float) -> None:
    """Die when this comes for the ``count``-th time, or after so many seconds."""
    left = [count]

    def step() -> None:
        left[0] -= 1
        if left[0] == 0:
            die()

    def around(owner: Any, name: str, *, before: bool) -> None:
        real = getattr(owner, name)

        def armed(*given: Any, **named: Any) -> Any:
            if before:
                step()
            result = real(*given, **named)
            if not before:
                step()
            return result

        setattr(owner, name, armed)

    def around_sending(*, before: bool) -> None:
        send = Way.send

        async def armed(self: Way, rows: Any) -> None:
            if before:
                step()
            await send(self, rows)
            if not before:
                step()

        Way.send = armed  # type: ignore[method-assign]

    if point == "opened":
        around(Reading, "__init__", before=False)
    elif point in ("leaving", "arrived"):
        around_sending(before=point == "leaving")
    elif point == "confirmed":
        around(State, "confirm", before=False)
    elif point == "statement":
        connect = state._connect

        def traced(path: Path) -> sqlite3.Connection:
            db = connect(path)
            db.set_trace_callback(lambda statement: step())
            return db

        state._connect = traced
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()


def born(work: Callable[[], None], log: Path) -> int:
    """A child that does the work; its id."""
    child = os.fork()
    if child:
        return child
    status = 7
    try:
        with log.open("ab") as said:
            os.dup2(said.fileno(), 2)
        work()
        status = 0
    finally:
        os._exit(status)


@dataclass
class Shipped:
    """What became of a campaign."""

    points: Counter[str] = field(default_factory=Counter)
    files: int = 0
    events: int = 0
    arrived: int = 0
    cut: int = 0
    seconds: float = 0.0


def campaign(folder: Path, *, first: int, seeds: int, topic: Callable[[int], Topic | None]) -> Shipped:
    """Run the seeds and judge each; an ``AssertionError`` names the seed that broke what must hold. ``topic``: where a seed ships to; None: a file."""
    began, shipped = time.monotonic(), Shipped()
    for seed in range(first, first + seeds):
        mine = folder / str(seed)
        mine.mkdir()
        one(mine, seed, topic(seed), shipped)
        shutil.rmtree(mine)
    shipped.seconds = time.monotonic() - began
    return shipped


def one(folder: Path, seed: int, topic: Topic | None, shipped: Shipped) -> None:
    dice = random.Random(seed)
    root, home, log = folder / "files", folder / "state", folder / "log"
    root.mkdir()
    sink = f"file:{folder / 'sink'}" if topic is None else f"kafka://{topic.bootstrap}/{topic.name}"
    point, later = POINTS[seed % len(POINTS)], dice.choice(POINTS)

    def killed(point: str, settle: float, most: int, seconds: float) -> int:
        count = dice.randint(1, most * (12 if point == "statement" else 1))
        soon = dice.uniform(0.1, seconds) if point == "any moment" else LIFE_SECONDS
        return born(lambda: life(root, home, sink, settle, point, count, soon), log)

    child = killed(point, NEVER, 12, 1.5)
    for _ in at_work(root, dice):
        time.sleep(dice.uniform(0.0, 0.02))
    died(child, seed, point, shipped)
    died(killed(later, SETTLE, 5, 1.0), seed, later, shipped)
    child = born(lambda: life(root, home, sink, SETTLE, None, 0, 0), log)
    until_told(root, home, child, seed, log)
    os.kill(child, signal.SIGTERM)
    _, ended = os.waitpid(child, 0)
    assert os.WIFEXITED(ended) and os.WEXITSTATUS(ended) == 0, f"seed {seed}: {log.read_text()}"
    assert "Traceback" not in log.read_text(), f"seed {seed}: {log.read_text()}"
    judge(
        root,
        lines_of(folder / "sink") if topic is None else [each.value for each in consumed(topic)],
        seed,
        shipped,
    )


def died(child: int, seed: int, point: str, shipped: Shipped) -> None:
    """A life may have told everything before its point came: then it is killed at rest."""
    until = time.monotonic() + 4.0
    gone, ended = os.waitpid(child, os.WNOHANG)
    while not gone and time.monotonic() < until:
        time.sleep(0.02)
        gone, ended = os.waitpid(child, os.WNOHANG)
    if not gone:
        os.kill(child, signal.SIGKILL)
        _, ended = os.waitpid(child, 0)
        point = "at rest"
    assert os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL, f"seed {seed}: it ended by itself"
    shipped.points[point] += 1


def candidates(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file() and discovery.is_candidate(path)]


def until_told(root: Path, home: Path, child: int, seed: int, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        stands = state.look(home)
        shown = standing.of_state(stands)
        files = [each for each in stands.checkpoints if not each.gone]
        at_rest = all(each.settled or not set(each.notes) & {"held", "partial", "outdated"} for each in files)
        if (
            stands.pid == child
            and stands.address
            and shown["files"]["told"] == len(candidates(root))
            and at_rest
            and not shown["lag"]["bytes"]
        ):
            return
        assert os.waitpid(child, os.WNOHANG) == (0, 0), f"seed {seed}: it ended by itself: {log.read_text()}"
        assert time.monotonic() < until, f"seed {seed}: not told: {shown}"
        time.sleep(0.1)


def lines_of(sink: Path) -> list[bytes]:
    return sink.read_bytes().splitlines()


def judge(root: Path, found: list[bytes], seed: int, shipped: Shipped) -> None:
    """Every event of the files arrived, nothing that is in none of them, and the ledger is that of one import of them."""
    files = candidates(root)
    once = [record for path in files for record in imported(path)]
    wanted = set(once)
    # What stands behind a kill in the middle of a line is the beginning of an event that came again.
    whole = [record for record in found if record in wanted]
    cut = [record for record in found if record not in wanted]
    assert all(any(each.startswith(record) for each in wanted) for record in cut), f"seed {seed}: {cut}"
    assert set(whole) == wanted, f"seed {seed}: {sorted(wanted - set(whole))}"
    again = Counter(whole) - Counter(wanted)
    of = {str(path): sum(again[record] for record in imported(path)) for path in files}
    assert again.total() <= KILLS * LANES * ROWS, f"seed {seed}: came again: {of}"
    assert fold(whole)["digest"] == fold(once)["digest"], f"seed {seed}"
    shipped.files += len(files)
    shipped.events += len(wanted)
    shipped.arrived += len(whole)
    shipped.cut += len(cut)


REPORT = """# `ship` under fault, {day}

`python -m tests.fault.shipping --seeds {seeds} --kafka {kafka}`: {cores} shared cores, {machine}, Python {python}.

## kill -9 at {kills} seeded points

In each of {seeds} seeds five to eight harnesses write: files of lines that grow, are cut, moved, replaced, written anew in place or rotated,
documents that are written as a whole each time, databases. One shipping process is killed while they write, the next one when they have ended, a third one
tells the rest. {kafka} seeds ship into Kafka, the others into a file. What arrived is laid beside one import of the files as they are.

| killed | times |
|---|---|
{points}

- {shipped.files:,} files at the end, with {shipped.events:,} events: each of them arrived, and nothing that is in none of the files.
- The digest of what arrived is that of the import, in every seed.
- {shipped.arrived:,} events arrived: {again:,} came twice, at most a batch ({rows} events here) for each kill and lane.
- {shipped.cut:,} lines of the files were cut by a kill and came again.
- {shipped.seconds:.0f} s in all.
"""


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.shipping")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kafka", type=int, default=10)
    parser.add_argument("--result", type=Path)
    given = parser.parse_args()
    stack = servers.provide(choose()) if given.kafka else None

    def topic(seed: int) -> Topic | None:
        into_kafka = stack is not None and seed - given.first < given.kafka
        return create_topic(stack.kafka_bootstrap, 2) if stack is not None and into_kafka else None

    try:
        with tempfile.TemporaryDirectory() as scratch:
            shipped = campaign(Path(scratch), first=given.first, seeds=given.seeds, topic=topic)
    finally:
        if stack is not None:
            stack.close()
    report = REPORT.format(
        day=time.strftime("%Y-%m-%d"), seeds=given.seeds, kafka=given.kafka, kills=shipped.points.total(), cores=os.cpu_count(),
        machine=platform.machine(), python=platform.python_version(), shipped=shipped, rows=ROWS, again=shipped.arrived - shipped.events,
        points="\n".join(f"| {point} | {shipped.points[point]} |" for point in (*POINTS, "at rest") if shipped.points[point]),
    )  # fmt: skip
    print(report)
    if given.result is not None:
        given.result.write_text(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
