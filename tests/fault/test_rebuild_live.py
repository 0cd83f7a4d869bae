"""A rebuild and a switch while the fleet goes on: nothing is lost or told twice, readers see no error and no mixture, whoever is killed is followed
by one that goes on, and partitions change hands without a rebalance."""

from __future__ import annotations

import json
import random
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tests.integration.ingesting import environment, rows, until_applied, until_projected
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, produce
from turnledger.replay.rebuild import open_connection
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup

CHOICES = random.Random(7)


def turn(session: str, number: int) -> list[Record]:
    """One turn of four events that follow on those of the turn before."""
    call = {
        "provider": "anthropic", "model": "claude-opus-4-5", "message_id": f"{session}-{number}",
        "usage": {"input": 100, "output": 10, "cache_read": 0},
    }  # fmt: skip
    told: list[tuple[str, dict[str, Any]]] = [
        ("turn.started", {}),
        ("model_call.completed", call),
        ("net.requested", {"domain": "a.example", "decision": "allowed"}),
        ("turn.completed", {"status": "completed"}),
    ]
    return [
        Record(
            json.dumps(
                {
                    "session_id": session,
                    "seq": 4 * number + n,
                    "type": type_,
                    "turn_id": f"t{number}",
                    "occurred_at": f"2026-03-01T12:{number // 60:02d}:{number % 60:02d}.{n}00Z",
                    "payload": payload,
                }
            ).encode(),
            f"default/{session}".encode(),
        )
        for n, (type_, payload) in enumerate(told)
    ]


@dataclass
class Fleet:
    """Sessions that take turns, one after the other, until it is stopped."""

    topic: Topic
    sent: int = 0
    turns: dict[str, int] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def send(self, turns: int, sessions: int) -> None:
        """So many turns of each of so many sessions at once."""
        records = []
        for n in range(sessions):
            name = f"s{n}"
            for _ in range(turns):
                number = self.turns.get(name, 0)
                records += turn(name, number)
                self.turns[name] = number + 1
        produce(self.topic, records)
        self.sent += len(records)

    def go_on(self) -> None:
        def run() -> None:
            while not self._end.wait(0.15):
                self.send(1, 6)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()


@dataclass
class Readers:
    """Three people who look all the time: each their own way, each over a connection of their own."""

    url: str
    pause: float = 0.01
    """Seconds between two looks."""
    looks: int = 0
    faults: list[str] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    ASK = (
        "select count(*), count(distinct case when grade = 'planted' then 'b' else 'a' end), coalesce(sum(revision), 0) from turnledger.turns "
        "where session_id = 'marked'"
    )

    def start(self) -> None:
        for look in (self._prepared, self._repeatable, self._cursor):
            thread = threading.Thread(target=self._run, args=(look,))
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self, look: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            with psycopg.connect(self.url, autocommit=True, prepare_threshold=0) as link:
                while not self._end.is_set():
                    look(link)
                    self.looks += 1
                    time.sleep(self.pause)
        except Exception as error:
            self.faults.append(f"{look.__name__}: {error!r}")

    def _held(self, found: Any) -> tuple[Any, ...]:
        turns, kinds, _ = found
        if turns != 8 or kinds != 1:
            self.faults.append(f"{turns} turns of {kinds} generations at once")
        return tuple(found)

    def _prepared(self, link: psycopg.Connection[Any]) -> None:
        self._held(link.execute(self.ASK, prepare=True).fetchone())

    def _repeatable(self, link: psycopg.Connection[Any]) -> None:
        """What a transaction has seen it sees again, for as long as it is open."""
        with link.transaction():
            link.execute("set transaction isolation level repeatable read")
            first = self._held(link.execute(self.ASK).fetchone())
            for _ in range(20):
                time.sleep(0.02)
                if (again := self._held(link.execute(self.ASK).fetchone())) != first:
                    self.faults.append(f"a repeatable read saw {first}, then {again}")

    def _cursor(self, link: psycopg.Connection[Any]) -> None:
        """A cursor that was opened goes on with what it began with."""
        with link.transaction(), link.cursor(name="c") as cursor:
            cursor.execute("select grade = 'planted' from turnledger.turns where session_id = 'marked'")
            seen = set()
            for _ in range(8):
                row = cursor.fetchone()
                seen.add(None if row is None else row[0])
                time.sleep(0.02)
            if len(seen) != 1 or None in seen:
                self.faults.append(f"a cursor saw {seen}")


def counter(worker: Running, name: str) -> int:
    """A figure of the worker's /metrics; −1 while it serves none."""
    address = re.search(r"health at (http://\S+)/healthz'", worker.output())
    if address is None:
        return -1
    with urllib.request.urlopen(address.group(1) + "/metrics", timeout=5) as answer:
        found = re.search(rf"turnledger_ingest_{name} (\d+)", answer.read().decode())
    assert found is not None, name
    return int(found.group(1))


@pytest.fixture
def fleet(topic: Topic) -> Iterator[Fleet]:
    there = Fleet(topic)
    yield there
    there.stop()


def digests(url: str) -> list[Any]:
    """What readers see of the turns."""
    return sorted(
        rows(url, "select session_id, turn_key, revision, digest, total_input_tokens from turnledger.turns")
    )


def settled(url: str, topic: Topic) -> None:
    until_projected(url, topic)
    Rollup(RollupSettings(), url, PriceBook()).drain()


@pytest.mark.partitions(2)
def test_a_rebuild_and_a_switch_beside_live_work(
    fleet: Fleet, topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    there = environment(topic, database)
    worker = start("worker", environment=there)
    rollup = start("rollup", "--health-port", "0", environment=there)
    produce(topic, [record for n in range(8) for record in turn("marked", n)])
    fleet.sent += 32
    fleet.send(10, 40)
    until_applied(database, topic, fleet.sent, worker)
    readers = Readers(database)
    fleet.go_on()
    readers.start()

    rebuild = start("replay", "projections", "--workers", "1", environment=there)
    kills = 0
    for pause in (CHOICES.uniform(0.8, 2.5) for _ in range(3)):
        time.sleep(pause)
        if rebuild.running():
            rebuild.kill9()
            kills += 1
            rebuild = start("replay", "projections", "--workers", "1", environment=there)
    assert rebuild.wait(seconds=300) == 0, rebuild.output()
    assert kills > 0
    # What nobody writes any more tells the two generations apart.
    planted = "update projection_b.turns set grade = 'planted' where session_no = (select session_no from ledger.sessions where session_id = 'marked')"
    with psycopg.connect(database, autocommit=True) as link:
        link.execute(planted)
    done = run("replay", "switch", "--json", environment=there)
    assert done.returncode == 0, done.stderr
    time.sleep(1)
    readers.stop()
    fleet.stop()
    until_applied(database, topic, fleet.sent, worker)
    settled(database, topic)

    assert readers.faults == []
    assert readers.looks > 20
    told = rows(database, "select grade from turnledger.turns where session_id = 'marked'")
    assert told == [("planted",)] * 8
    with psycopg.connect(database, autocommit=True) as link:
        link.execute(planted.replace("'planted'", "'complete'"))
    counted = dict(
        rows(
            database,
            "select session_id, count(*) from turnledger.turns where session_id <> 'marked' group by 1",
        )
    )
    assert counted == fleet.turns
    assert rollup.running()
    found = run("verify", "--settle", "10", environment=there)
    assert found.stdout.splitlines()[-1] == "verify: all invariants hold", found.stdout


@pytest.mark.partitions(2)
def test_partitions_are_handed_to_a_fleet_that_stands_by_without_a_rebalance(
    fleet: Fleet, topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    there = environment(topic, database)
    old = start("worker", environment=there)
    fleet.send(2, 10)
    until_applied(database, topic, fleet.sent, old)
    settled(database, topic)
    new = start("worker", "--group", f"{topic.group_id}-new", "--standby", environment=there)
    assert run("replay", "projections", "--workers", "1", environment=there).returncode == 0
    said = run("replay", "status", environment=there).stdout
    assert (
        f"events folded {fleet.sent} of {fleet.sent}, compared {fleet.sent} of {fleet.sent}, roll-ups that wait 0"
        in said
    )
    eventually(
        lambda: "joined" in new.output() or "health at" in new.output(),
        seconds=30,
        what="the new fleet joined",
    )
    # The switch that does not come: what is busy was read, and nothing is claimed.
    eventually(lambda: counter(new, "ahead_sessions") == 10, seconds=30, what="the sessions were read ahead")
    # They move between that and the switch.
    fleet.send(2, 10)
    until_applied(database, topic, fleet.sent, old)
    settled(database, topic)
    before = digests(database)
    assert "claimed" not in new.output()
    claims = "select partition, owner_epoch from ledger.ingest_progress order by 1"
    first = dict(rows(database, claims))

    done = run("replay", "switch", "--group", f"{topic.group_id}-new", "--json", environment=there)

    assert done.returncode == 0, done.stderr
    eventually(lambda: new.output().count("claimed") >= 2, seconds=20, what="both partitions claimed")
    assert digests(database) == before
    fleet.send(2, 10)
    until_applied(database, topic, fleet.sent, new)
    settled(database, topic)
    # What was read ahead and had moved since was brought up to date, not read again.
    assert (counter(new, "cold_loads_total"), counter(new, "ahead_sessions")) == (0, 0)
    # The switch raised each epoch, its new owner once more: nobody was revoked and claimed again.
    assert dict(rows(database, claims)) == {partition: epoch + 2 for partition, epoch in first.items()}
    owners = rows(database, "select distinct group_id from ledger.ingest_progress")
    assert owners == [(f"{topic.group_id}-new",)]
    counted = dict(rows(database, "select session_id, count(*) from turnledger.turns group by 1"))
    assert counted == fleet.turns
    assert old.running()
    found = run("verify", "--settle", "10", environment=there)
    assert found.stdout.splitlines()[-1] == "verify: all invariants hold", found.stdout


@pytest.mark.partitions(2)
def test_a_fleet_that_stood_by_and_was_killed_is_followed_by_one_that_reads_for_itself(
    fleet: Fleet, topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    there = environment(topic, database)
    heirs = ("worker", "--group", f"{topic.group_id}-new", "--standby")
    old = start("worker", environment=there)
    fleet.send(3, 10)
    until_applied(database, topic, fleet.sent, old)
    settled(database, topic)
    assert run("replay", "projections", "--workers", "1", environment=there).returncode == 0
    new = start(*heirs, environment=there)
    eventually(lambda: counter(new, "ahead_sessions") == 10, seconds=30, what="the sessions were read ahead")
    new.kill9()
    fleet.send(3, 10)
    until_applied(database, topic, fleet.sent, old)

    done = run("replay", "switch", "--group", f"{topic.group_id}-new", "--json", environment=there)

    assert done.returncode == 0, done.stderr
    fleet.send(3, 10)
    heir = start(*heirs, environment=there)
    until_applied(database, topic, fleet.sent, heir)
    settled(database, topic)
    assert counter(heir, "cold_loads_total") == 10
    counted = dict(rows(database, "select session_id, count(*) from turnledger.turns group by 1"))
    assert counted == fleet.turns
    found = run("verify", "--settle", "10", environment=there)
    assert found.stdout.splitlines()[-1] == "verify: all invariants hold", found.stdout


def test_who_is_killed_in_the_middle_of_a_drop_is_followed_by_one_that_ends_it(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as link:
        link.execute("update ledger.generations set state = 'emptying' where generation = 'b'")
    there = {"TURNLEDGER_DATABASE_URL": database}
    refused = run("replay", "projections", environment=there)
    assert (refused.returncode, refused.stderr.count("end that with `turnledger replay drop`")) == (2, 1)
    assert run("replay", "drop", environment=there).stdout == "generation b is empty\n"
    with open_connection(database):
        busy = run("replay", "drop", environment=there)
    assert (busy.returncode, busy.stderr.count("another `turnledger replay` is at work")) == (2, 1)
