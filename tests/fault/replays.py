"""Replays that are killed with -9: topics read first and again, archives written and read back, a rebuild, a switch, the way back, a drop.

`python -m tests.fault.replays [--points 100] [--first 0] [--result FILE]` starts a stack of its own. Each point is a command that kills itself at a step
that its seed decides: before, in or after a statement, a fetch, a piece of a file or an fsync. The same command is run again, as a person would, and what
stands in the database then is held against what an undisturbed run leaves. The test beside it runs a share.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from aiokafka import AIOKafkaConsumer

import turnledger.archive.place
import turnledger.archive.write
import turnledger.replay.archive
import turnledger.replay.hands
import turnledger.replay.pieces
import turnledger.replay.rebuild
import turnledger.replay.topics
from tests.integration.ingesting import event, one, rows
from tests.integration.letting_go import execute, moved_back, rolled_up, verified
from tests.integration.replaying import fleet, forget
from tests.stack import databases, servers
from tests.stack.commands import eventually
from tests.stack.servers import ROOT, environment_without_addresses
from tests.stack.topics import Record, Topic, create_topic, produce
from tests.unit.harness.killed import Proxy, die
from turnledger.archive.manifest import NAME
from turnledger.archive.place import place
from turnledger.archive.read import find
from turnledger.cli import build, main
from turnledger.devstack import choose
from turnledger.ingest.settle import Settling
from turnledger.replay.rebuild import Rebuilder
from turnledger.store import outbox
from turnledger.store.connect import connect

# -- a command that dies

WHEN = ("before", "in", "after")
"""Of a step: it was not begun, it was under way, it was done and nobody had heard of it."""
ENDLESS_SECONDS = 150
"""A command that takes so long hangs."""


@dataclass
class Death:
    """The step at which a process dies; 0 is never."""

    at: int = 0
    when: str = "before"
    soon: float = 0.001
    """Seconds into a step that is under way."""
    place: str = ""
    """Of ``PLACES``: it dies there, whichever step that is."""


OTHERS = Death()


class Steps:
    """Counts what a process does to the outside, and dies at one of it."""

    def __init__(self, death: Death) -> None:
        self.death, self.count = death, 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Another step begins. True where this process dies after it."""
        with self._lock:
            self.count += 1
            mine = self.count == self.death.at
        if mine and self.death.when == "before":
            die()
        if mine and self.death.when == "in":
            threading.Timer(self.death.soon, die).start()
        return mine

    def arm(self) -> None:
        """Statements and fetches are steps from now on, and what is done to files of an archive."""
        wait, getmany = psycopg.Connection.wait, AIOKafkaConsumer.getmany
        write = turnledger.archive.write._Counted.write

        def waited(connection: Any, *given: Any, **more: Any) -> Any:
            mine = self.enter()
            found = wait(connection, *given, **more)
            if mine:
                die()
            return found

        async def got(consumer: Any, *given: Any, **more: Any) -> Any:
            mine = self.enter()
            found = await getmany(consumer, *given, **more)
            if mine:
                die()
            return found

        def written(file: Any, data: Any) -> int:
            if self.enter():
                # Half of it, or all, and on the disk: what a file may be left as.
                file.file.write(bytes(data)[: len(data) // 2] if self.death.when == "in" else data)
                file.file.flush()
                die()
            return write(file, data)

        def step(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def done(*given: Any) -> Any:
                mine = self.enter()
                found = real(*given)
                if mine:
                    die()
                return found

            return done

        psycopg.Connection.wait = waited  # type: ignore[method-assign]
        AIOKafkaConsumer.getmany = got  # type: ignore[method-assign]
        turnledger.archive.write._Counted.write = written  # type: ignore[method-assign]
        turnledger.archive.place.os = Proxy(os, fsync=step("fsync"), replace=step("replace"))  # type: ignore[assignment]


def in_small_pieces() -> None:
    """A few hundred events take as many transactions and files as a few hundred thousand do."""
    turnledger.replay.topics.AT_ONCE = 40
    turnledger.replay.archive.ROUND_EVENTS = 40
    turnledger.replay.rebuild.PIECE_EVENTS = 60
    turnledger.replay.rebuild.FOLLOWED_SESSIONS = 3
    turnledger.replay.rebuild.FOLLOWED_EVENTS = 30
    turnledger.replay.rebuild.LOOKED_AT = 4
    turnledger.replay.pieces.RESTS_SECONDS = 0.0
    turnledger.archive.write.PART_BYTES = 12_000


@dataclass
class Life:
    """One command, and when it dies. Everything is JSON, so that another process can live it."""

    arguments: list[str]
    environment: dict[str, str]
    log: str
    death: Death = field(default_factory=Death)
    hand: Death = field(default_factory=Death)
    """Of the first process that it starts for the pieces of a rebuild."""

    def steps(self, whose: str) -> Path:
        """Where ``main`` or the first ``hand`` writes how many steps it took, when it ends."""
        return Path(f"{self.log}.{whose}")

    def count(self, whose: str) -> int:
        return int(self.steps(whose).read_text())

    def said(self) -> str:
        return Path(self.log).read_text(errors="replace")


def live(life: Life) -> None:
    """Be that command, in a process of its own. Does not return."""
    signal.alarm(ENDLESS_SECONDS)
    os.environ.clear()
    os.environ.update(environment_without_addresses() | life.environment)
    log = os.open(life.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(given, number)
    armed_hands(life)
    if life.death.place:
        PLACES[life.death.place]()
    steps = Steps(life.death)
    steps.arm()
    be(life.arguments, steps, life.steps("main"))


def doubts_are_forgotten() -> None:
    """And nothing is planned in their place."""
    plan = turnledger.replay.rebuild.plan

    def planned(*given: Any, kind: str, **more: Any) -> None:
        if kind == "compare":
            die()
        plan(*given, kind=kind, **more)

    turnledger.replay.rebuild.plan = planned


def before(name: str, phase: str) -> Callable[[], None]:
    """A method of those who rebuild, in that phase."""

    def arm() -> None:
        real = getattr(Rebuilder, name)

        def dies(rebuilder: Rebuilder, *given: Any, **more: Any) -> Any:
            if rebuilder.rebuild.phase == phase:
                die()
            return real(rebuilder, *given, **more)

        setattr(Rebuilder, name, dies)

    return arm


def a_round_is_folded(*, committed: bool) -> Callable[[], None]:
    """While the one before it is on its way to the database, or just when that is ``committed``."""

    def arm() -> None:
        settle = Settling._settle

        async def dies(ingest: Settling, following: Any, **more: Any) -> bool:
            beside = following is not None and ingest._flying is not None
            if beside and not committed:
                die()
            found = await settle(ingest, following, **more)
            if beside:
                die()
            return found

        Settling._settle = dies  # type: ignore[method-assign]

    return arm


PLACES: dict[str, Callable[[], None]] = {
    "a round is folded beside a write": a_round_is_folded(committed=False),
    "a round is folded on one that is committed": a_round_is_folded(committed=True),
    "doubts are forgotten": doubts_are_forgotten,
    "a comparison is planned": before("_work", "comparing"),
    "nobody was looked at again": before("look_again", "comparing"),
    "a switch has not followed": before("catch_up", "ready"),
    "a switch has not looked again": before("look_again", "ready"),
}
"""Places between two steps of a replay, a rebuild and a switch that chance would seldom meet."""


def be(arguments: Sequence[str], steps: Steps, told: Path) -> None:
    in_small_pieces()
    sys.argv = ["turnledger", *arguments]
    status: Any = 70
    try:
        main()
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        told.write_text(str(steps.count))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 71)


def armed_hands(life: Life) -> None:
    """Processes of a rebuild count their steps, and the first one dies at its own."""
    popen, deaths = subprocess.Popen, [life.hand]

    def start(command: list[str], **more: Any) -> Any:
        death = deaths.pop() if deaths else OTHERS
        first = life.steps("hand") if death is not OTHERS else Path(os.devnull)
        given = json.dumps([asdict(death), str(first), command[4:]])
        return popen([sys.executable, "-m", "tests.fault.replays", "--hand", given], cwd=ROOT, **more)

    turnledger.replay.hands.subprocess = Proxy(subprocess, Popen=start)  # type: ignore[assignment]


def lives() -> None:
    """A life a line of standard input, each in a process forked from this one; how it ended, a line each."""
    build()
    for line in sys.stdin:
        given = json.loads(line)
        life = Life(**given | {"death": Death(**given["death"]), "hand": Death(**given["hand"])})
        child = os.fork()
        if child == 0:
            live(life)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


class Lives:
    """Runs lives, without the seconds that imports take."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.replays", "--lives"],
            cwd=ROOT,
            env=environment_without_addresses(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, life: Life) -> int:
        """Its exit status, or the signal below 0."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(life)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


# -- what stands in a database

SAME = {
    "events": "select tenant, session_id, producer, epoch, stream, seq, receipt_key, raw from turnledger.events",
    "turns": "select tenant, session_id, turn_key, digest, grade, total_input_tokens, output_tokens from turnledger.turns",
    "sessions": "select to_jsonb(s) - 'dead_letters' from turnledger.sessions s",
    "gaps": "select tenant, session_id, producer, epoch, stream, from_seq, to_seq, state from turnledger.gaps "
    "where state not in ('filled_late', 'withdrawn')",
    "conflicts": "select tenant, session_id, producer, epoch, stream, seq, receipt_key, kept_sha256, lost_sha256 from turnledger.conflicts",
    "findings": 'select tenant, session_id, "check", severity, count, rows from turnledger.findings',
    "usage_hourly": "select to_jsonb(u) from turnledger.usage_hourly u",
    "letters": "select topic, partition, position, outcome from turnledger.dead_letters",
    "outbox": "select s.session_id, o.turn_key from ledger.outbox o join ledger.sessions s using (session_no)",
    "generations": "select generation, state, fold_version from ledger.generations",
    "active": "select generation from turnledger.active",
    "switches": "select from_generation, to_generation, back, differences, diff_sha256, why from ledger.switches",
    "archives": "select tenant, day, events, sessions, bytes from turnledger.archives",
    "filled": "select s.session_id from ledger.filled f join ledger.sessions s using (session_no)",
}
"""What must be the same, whoever was killed."""
LEFT = {
    "a topic replay that never ends": "select 1 from ledger.topic_replays where finished_at is null",
    "marks": "select 1 from ledger.marks",
    "marks of the rebuild": "select 1 from ledger.shadow_marks where not exists (select from ledger.rebuilds where outcome is null)",
    "pieces": "select 1 from ledger.rebuild_chunks where not exists (select from ledger.rebuilds where outcome is null)",
    "pieces that nobody did": "select 1 from ledger.rebuild_chunks where done_at is null",
    "doubts": "select 1 from ledger.rebuild_doubts where not exists (select from ledger.rebuilds where outcome is null)",
    "positions of an empty generation": "select 1 from ledger.projection_progress p join ledger.generations g using (generation) where g.state = 'empty'",
}
"""What must not be left, each with how it would be found."""
HOLDERS = (
    "select application_name from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' "
    "union all select 'a lock: ' || locktype from pg_locks where locktype = 'advisory' "
    "and database = (select oid from pg_database where datname = current_database())"
)


TABLES = (
    "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname in ('projection_a', 'projection_b') and c.relkind = 'r' and c.relname not in ('rollup_due', 'hour_marks')"
)
"""Of both generations, but for when a session may be rolled up again and what waits for that."""


def told(database: str, archive: Path, *, slots: bool) -> dict[str, list[str]]:
    """What readers see, what became of records, what the archive holds; with ``slots`` every row of both generations. Each sorted."""
    found = {name: sorted(map(repr, rows(database, statement))) for name, statement in SAME.items()}
    if slots:
        for slot, table in rows(database, TABLES):
            found[f"{slot}.{table}"] = sorted(
                map(repr, rows(database, f"select to_jsonb(t) from {slot}.{table} t"))
            )
    whole, damaged = find(place(str(archive)))
    assert damaged == []
    named = []
    for day in whole:
        day.check()
        named += [(day.folder, NAME), *((day.folder, file.name) for file in day.manifest.files)]
        found[f"archive {day.folder}"] = [day.manifest.events_sha256, *map(repr, day.manifest.files)]
    there = [
        (str(file.parent.relative_to(archive)), file.name) for file in archive.rglob("*") if file.is_file()
    ]
    assert sorted(there) == sorted(named), "files that no manifest names"
    return found


def nothing_left(database: str) -> None:
    """No row that waits for a command, no lock, no process of a command that is gone."""
    for what, statement in LEFT.items():
        assert rows(database, statement) == [], what
    eventually(lambda: rows(database, HOLDERS) == [], seconds=20, what="nobody holds anything")


# -- where a point begins

PARTS = (3, 1, 1)
"""Turns of each session in each part of the topic."""
SESSIONS = 8
LARGE = 1500
"""Bytes; a record was too large for whoever read it first."""


@dataclass(frozen=True)
class Stage:
    """A database to be copied, and the archive that goes with it."""

    database: str
    archive: Path


class Stages:
    """Databases as a person finds them, each made once, by the commands themselves, from the one before it."""

    def __init__(self, stack: servers.Servers, folder: Path, alive: Lives, template: str) -> None:
        self.stack, self.folder, self.alive = stack, folder, alive
        self.topic: Topic = create_topic(stack.kafka_bootstrap, 2)
        self.cuts = list(self._publish())
        """The offset at which each part ends, in both partitions."""
        self._count = 0
        self._made: list[str] = []
        self._known = {"empty": Stage(databases.named(stack.database_url, template), self._folder())}

    def _publish(self) -> Iterator[str]:
        first = end = 0
        for turns in PARTS:
            sides: list[list[Record]] = [[], []]
            for record in fleet(SESSIONS, turns, first=first):
                assert record.key is not None
                side = int(record.key.rpartition(b"s")[2]) % 2
                sides[side].append(Record(record.value, record.key, side))
            first += turns
            for side, records in enumerate(sides):
                name = f"s{side}"
                more = [
                    records[0],
                    event(name, 5 * first - 1, "note", payload={"text": "another content"}),
                    Record(b"garbage", key=f"default/{name}".encode()),
                    event(name, None, "note", receipt_key=f"large-{first}", payload={"text": "x" * LARGE}),
                ]
                records += [Record(one.value, one.key, side) for one in more]
            assert len(sides[0]) == len(sides[1])
            produce(self.topic, [*sides[0], *sides[1]])
            end += len(sides[0])
            yield str(end)

    def _folder(self) -> Path:
        self._count += 1
        made = self.folder / f"archive-{self._count}"
        made.mkdir()
        return made

    def copy(self, name: str) -> Stage:
        """A copy of one's own."""
        stage = self.get(name)
        url = databases.create(self.stack.database_url, template=stage.database.rpartition("/")[2])
        self._made.append(url)
        archive = self._folder()
        shutil.copytree(stage.archive, archive, dirs_exist_ok=True)
        return Stage(url, archive)

    def give_back(self, stage: Stage) -> None:
        databases.drop(self.stack.database_url, stage.database)
        self._made.remove(stage.database)
        shutil.rmtree(stage.archive)

    def close(self) -> None:
        for url in self._made:
            databases.drop(self.stack.database_url, url)

    def get(self, name: str) -> Stage:
        if name not in self._known:
            self._known[name] = getattr(self, f"_{name.replace(' ', '_')}")()
        return self._known[name]

    def life(self, at: Stage, *arguments: str, **more: Any) -> Life:
        environment = self.topic.environment() | {
            "TURNLEDGER_DATABASE_URL": at.database,
            "TURNLEDGER_ROUND_EVENTS": "40",
            "TURNLEDGER_LINGER_MS": "0",
        }
        self._count += 1
        log = str(self.folder / f"{self._count}.log")
        given = [one.format(archive=at.archive, first=self.cuts[0], last=self.cuts[-1]) for one in arguments]
        return Life(given, environment | more.pop("environment", {}), log, **more)

    def do(self, at: Stage, *arguments: str, status: int = 0, **more: Any) -> None:
        life = self.life(at, *arguments, **more)
        ended = self.alive.run(life)
        assert ended == status, (arguments, ended, life.said())

    def _lived(self) -> Stage:
        """The first part was read, by somebody who took little."""
        at = self.copy("empty")
        with connect(at.database, "test", autocommit=True) as connection:
            outbox.switch(connection, on=True)
        little = {"TURNLEDGER_RECORD_LIMIT_BYTES": str(LARGE), "TURNLEDGER_DEAD_LETTER_BYTES": "100"}
        self.do(at, "replay", "topics", "--to", self.cuts[0], environment=little)
        rolled_up(at.database)
        return at

    def _holed(self) -> Stage:
        """The ledger lost a session."""
        at = self.copy("lived")
        forget(at.database, "s2")
        return at

    def _dated(self) -> Stage:
        """All of it came three days ago."""
        at = self.copy("lived")
        moved_back(at.database, 3)
        rolled_up(at.database)
        return at

    def _archived(self) -> Stage:
        """Another installation, and the archive of the first."""
        whole = self.copy("dated")
        self.do(whole, "archive", "{archive}")
        at = self.copy("empty")
        shutil.copytree(whole.archive, at.archive, dirs_exist_ok=True)
        return at

    def _begun(self) -> Stage:
        """A rebuild that was cut short, and what came in since."""
        at = self.copy("lived")
        self.do(
            at, "replay", "projections", "--workers", "1", status=-signal.SIGKILL, death=Death(at=40, when="after"),
        )  # fmt: skip
        self.do(at, "replay", "topics", "--to", self.cuts[1])
        rolled_up(at.database)
        return at

    def _built(self) -> Stage:
        """A rebuild that differs in one session, and what came in since."""
        at = self.copy("lived")
        session = "(select session_no from ledger.sessions where session_id = 's3')"
        execute(
            at.database, f"update projection_a.turns set stop_why = 'planted' where session_no = {session}"
        )
        self.do(at, "replay", "projections", "--workers", "1", "--settle", "1", status=1)
        self.do(at, "replay", "topics", "--to", self.cuts[1])
        rolled_up(at.database)
        return at

    def _switched(self) -> Stage:
        """Switched to it, and what came in since."""
        at = self.copy("built")
        self.do(at, "replay", "switch", "--accept", "planted", "--settle", "1")
        self.do(at, "replay", "topics", "--to", self.cuts[2])
        rolled_up(at.database)
        return at


# -- a point

SWITCHED = "select count(*) from ledger.switches"


@dataclass(frozen=True)
class Kind:
    """A command that is killed."""

    name: str
    stages: tuple[str, ...]
    arguments: tuple[str, ...]
    hands: bool = False
    """It has processes of its own, which are killed as well."""
    slots: bool = False
    """Every row of both generations must be the same afterwards."""
    once: bool = False
    """`replay status` tells whether it is done; then nobody asks again."""


KINDS = (
    Kind("replay topics, never read", ("empty",), ("replay", "topics", "--to", "{last}")),
    Kind("replay topics, read before", ("holed",), ("replay", "topics", "--to", "{first}")),
    Kind("archive", ("dated",), ("archive", "{archive}")),
    Kind("replay archive", ("archived",), ("replay", "archive", "{archive}")),
    Kind("replay projections", ("lived", "begun"), ("replay", "projections", "--workers", "2", "--settle", "1"), hands=True, slots=True),
    Kind(
        "replay switch", ("built",), ("replay", "switch", "--workers", "1", "--accept", "planted", "--settle", "1"), hands=True, slots=True, once=True,
    ),
    Kind(
        "replay switch --back", ("switched",), ("replay", "switch", "--back", "--workers", "1", "--accept", "planted", "--settle", "1"), hands=True,
        slots=True, once=True,
    ),
    Kind("replay drop", ("switched", "begun"), ("replay", "drop"), slots=True),
)  # fmt: skip
BUSY = (
    "is at work",
    "by another process",
    "another process works",
    "another process applies",
    "another replay",
)
"""What a command says while the one before it, which is dead, is still in the server: run it again."""


@dataclass(frozen=True)
class Undisturbed:
    """What a command leaves that nobody kills, and how many steps it takes."""

    left: dict[str, list[str]]
    main: int
    hand: int


@dataclass
class Kills:
    """What became of a campaign."""

    killed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By command and when."""
    again: int = 0
    """The command that goes on was killed, too."""
    hands: int = 0
    busy: int = 0
    """A command was refused while the dead one was still in the server."""
    done: int = 0
    """Points after which nothing was left to do."""
    steps: dict[str, int] = field(default_factory=dict)


@dataclass
class Campaign:
    """Points, one after the other."""

    stages: Stages
    kills: Kills = field(default_factory=Kills)
    _undisturbed: dict[tuple[str, str], Undisturbed] = field(default_factory=dict)

    def undisturbed(self, kind: Kind, stage: str) -> Undisturbed:
        known = self._undisturbed.get((kind.name, stage))
        if known is None:
            at = self.stages.copy(stage)
            life = self.stages.life(at, *kind.arguments)
            status = self.stages.alive.run(life)
            assert status == 0, (kind.name, status, life.said())
            rolled_up(at.database)
            nothing_left(at.database)
            left = told(at.database, at.archive, slots=kind.slots)
            self.stages.give_back(at)
            known = Undisturbed(left, life.count("main"), life.count("hand") if kind.hands else 0)
            self._undisturbed[kind.name, stage] = known
            self.kills.steps[kind.name] = max(self.kills.steps.get(kind.name, 0), known.main)
        return known

    def point(self, seed: int) -> None:
        """An ``AssertionError`` names the seed that broke what must hold."""
        chosen = random.Random(seed)
        kind = KINDS[seed % len(KINDS)]
        stage = kind.stages[seed // len(KINDS) % len(kind.stages)]
        whole = self.undisturbed(kind, stage)
        at = self.stages.copy(stage)
        told_of = f"seed {seed}: {kind.name}"
        try:
            before = one(rows(at.database, SWITCHED))
            ended = False
            if kind.hands and chosen.random() < 0.4:
                ended = self._hand(kind, at, chosen, whole, told_of)
                if not ended:
                    self.stages.give_back(at)
                    at = self.stages.copy(stage)
            if not ended:
                while not self._dies(kind, at, chosen, whole.main):
                    self.stages.give_back(at)
                    at = self.stages.copy(stage)
                if chosen.random() < 0.3 and not (kind.once and rows(at.database, SWITCHED) != [before]):
                    self.kills.again += self._dies(kind, at, chosen, whole.main)
            if kind.once and rows(at.database, SWITCHED) != [before]:
                ended = True
            self.kills.done += ended
            if not ended:
                self._again(kind, at, told_of)
            verified(at.database)
            nothing_left(at.database)
            left = told(at.database, at.archive, slots=kind.slots)
            for what, expected in whole.left.items():
                assert left[what] == expected, f"{told_of}: {what}"
            assert left.keys() == whole.left.keys(), told_of
        except BaseException as error:
            error.add_note(told_of)
            raise
        self.stages.give_back(at)

    def place(self, name: str, stage: str, place: str) -> None:
        """The command dies at a place, once; the same command ends it as if nothing had happened."""
        (kind,) = (one for one in KINDS if one.name == name)
        whole = self.undisturbed(kind, stage)
        at = self.stages.copy(stage)
        life = self.stages.life(at, *kind.arguments, death=Death(place=place))
        ended = self.stages.alive.run(life)
        assert ended == -signal.SIGKILL, (place, ended, life.said())
        self._again(kind, at, place)
        verified(at.database)
        nothing_left(at.database)
        assert told(at.database, at.archive, slots=kind.slots) == whole.left, place
        self.stages.give_back(at)

    def _death(self, chosen: random.Random, steps: int) -> Death:
        return Death(chosen.randint(1, steps), chosen.choice(WHEN), chosen.uniform(0.0001, 0.003))

    def _dies(self, kind: Kind, at: Stage, chosen: random.Random, steps: int) -> bool:
        """Whether it was killed before it ended."""
        life = self.stages.life(at, *kind.arguments, death=self._death(chosen, steps))
        ended = self.stages.alive.run(life)
        assert ended in (-signal.SIGKILL, 0) or self._is_busy(life), (ended, life.said())
        if ended == -signal.SIGKILL:
            self.kills.killed[kind.name, life.death.when] += 1
        return ended == -signal.SIGKILL

    def _hand(self, kind: Kind, at: Stage, chosen: random.Random, whole: Undisturbed, told_of: str) -> bool:
        """Whether a process for pieces was killed. The command that started it goes on by itself."""
        life = self.stages.life(at, *kind.arguments, hand=self._death(chosen, whole.hand // 2))
        ended = self.stages.alive.run(life)
        assert ended == 0, (told_of, ended, life.said())
        if life.steps("hand").exists():
            return False
        self.kills.hands += 1
        self.kills.killed[kind.name, life.hand.when] += 1
        return True

    def _is_busy(self, life: Life) -> bool:
        return any(word in life.said() for word in BUSY)

    def _again(self, kind: Kind, at: Stage, told_of: str) -> None:
        until = time.monotonic() + 20
        while True:
            life = self.stages.life(at, *kind.arguments)
            ended = self.stages.alive.run(life)
            if ended == 0:
                return
            assert self._is_busy(life) and time.monotonic() < until, (told_of, ended, life.said())
            self.kills.busy += 1
            time.sleep(0.1)


@contextlib.contextmanager
def campaign(stack: servers.Servers, template: str, folder: Path) -> Iterator[Campaign]:
    """On this stack, with a folder of its own."""
    with Lives() as alive:
        stages = Stages(stack, folder, alive, template)
        try:
            yield Campaign(stages)
        finally:
            stages.close()


# -- in full

REPORT = """# Replays that are killed, {day}

`python -m tests.fault.replays --points {points}`: {cores} shared cores, {machine}, Python {python}; a broker and a database of the run's own.

Each point is a command that kills itself with -9 at a step that its seed decides: a statement, a fetch, a piece of a file, an fsync. It dies before
the step, while it is under way, or when it is done and nobody has heard of it. The same command is run again, as a person would.

| command | steps of one that is not killed | before | in | after |
|---|---|---|---|---|
{rows}

- {points} points, {kills} kills: {again} times the command that went on was killed as well, {hands} times one of the processes that fold for a rebuild
  (its command went on by itself).
- After each the same command ended, and what stands in the database and in the archive is what an undisturbed run leaves: events, turns, sums, gaps,
  contradictions, dead letters, the outbox, switches; of rebuilds, switches and drops every row of both generations.
- `verify` holds after each. No replay that never ends, no mark, no piece, no doubt, no half file, no lock and no process of the server is left.
- {done} times nothing was left to be done: a switch had been made before its command could say so, or a command's own process was replaced.
- {busy} times a command was refused while the dead one was still in the server, said so, and was run again.
- {seconds:.0f} s in all.
"""


def share(given: tuple[str, str, Sequence[int]]) -> tuple[Kills, int]:
    """The points of these seeds, in a process of its own, and how many of them broke what must hold."""
    bootstrap, database_url, seeds = given
    os.environ.update(TURNLEDGER_KAFKA_BOOTSTRAP=bootstrap, TURNLEDGER_DATABASE_URL=database_url)
    stack = servers.provide(choose())
    broken = 0
    template = databases.migrated_template(stack.database_url)
    with tempfile.TemporaryDirectory() as scratch, campaign(stack, template, Path(scratch)) as run:
        for seed in seeds:
            try:
                run.point(seed)
            except AssertionError:
                traceback.print_exc()
                broken += 1
            print(f"{seed}: {KINDS[seed % len(KINDS)].name}", flush=True)
    databases.drop(stack.database_url, databases.named(stack.database_url, template))
    return run.kills, broken


def whole_campaign(points: int, first: int, processes: int, result: Path | None) -> int:
    """All of it, on a stack of its own. How many points broke what must hold: then nothing is written down."""
    began = time.monotonic()
    stack = servers.provide(choose())
    seeds = range(first, first + points)
    shares = [
        (stack.kafka_bootstrap, stack.database_url, seeds[number::processes]) for number in range(processes)
    ]
    try:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            shared = list(pool.map(share, shares))
    finally:
        stack.close()
    broken = sum(count for _, count in shared)
    if broken:
        print(f"{broken} points broke what must hold")
        return broken
    runs = [run for run, _ in shared]
    killed = sum((run.killed for run in runs), Counter[tuple[str, str]]())
    steps = {name: most for run in runs for name, most in run.steps.items()}
    report = REPORT.format(
        day=time.strftime("%Y-%m-%d"), points=points, cores=os.cpu_count(), machine=platform.machine(), python=platform.python_version(),
        rows="\n".join(
            f"| `{kind.name}` | {steps.get(kind.name, 0)} | " + " | ".join(str(killed[kind.name, when]) for when in WHEN) + " |"
            for kind in KINDS
        ),
        kills=killed.total(), again=sum(run.again for run in runs), hands=sum(run.hands for run in runs), done=sum(run.done for run in runs),
        busy=sum(run.busy for run in runs), seconds=time.monotonic() - began,
    )  # fmt: skip
    print(report)
    if result is not None:
        result.write_text(report)
    return 0


def entry() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.replays")
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--result", type=Path)
    parser.add_argument("--lives", action="store_true")
    parser.add_argument("--hand")
    given = parser.parse_args()
    if given.lives:
        lives()
    elif given.hand:
        death, told_in, arguments = json.loads(given.hand)
        steps = Steps(Death(**death))
        steps.arm()
        be(arguments, steps, Path(told_in))
    else:
        return min(1, whole_campaign(given.points, given.first, given.processes, given.result))
    return 0


if __name__ == "__main__":
    raise SystemExit(entry())
