"""A fleet that stands by reads sessions before it is given anything, and believes of them only what the ledger holds when it is (design 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
import pytest

from tests.integration.ingesting import environment, event, rows, until_applied, until_projected
from tests.integration.replaying import turn
from tests.stack import databases, servers
from tests.stack.commands import Running
from tests.stack.topics import Record, Topic, create_topic, produce
from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.fold.state import SessionState
from turnledger.fold.version import FOLD_VERSION
from turnledger.ingest import ahead as reading
from turnledger.ingest import load
from turnledger.ingest.ahead import Ahead
from turnledger.store.read import active_slot, session_events

Connection = psycopg.Connection[Any]
ROOM = 1 << 30


class Lived:
    """A topic of two partitions, and a worker that applies it."""

    def __init__(self, topic: Topic, url: str, worker: Running) -> None:
        self.topic, self.url, self.worker = topic, url, worker
        self.sent = 0

    def send(self, records: list[Record]) -> None:
        """Until they are applied and projected."""
        produce(self.topic, records)
        self.sent += len(records)
        until_applied(self.url, self.topic, self.sent, self.worker)
        until_projected(self.url, self.topic)


@pytest.fixture(scope="module")
def lived(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lived]:
    url = databases.create(stack.database_url, template=database_template)
    topic = create_topic(stack.kafka_bootstrap, 2)
    log = tmp_path_factory.mktemp("worker") / "log"
    there = Lived(topic, url, Running(("worker",), environment(topic, url), log))
    yield there
    there.worker.kill9()
    databases.drop(stack.database_url, url)


@pytest.fixture
def connection(lived: Lived) -> Iterator[Connection]:
    """Of a fleet that stands by, while a generation is ready to be switched to."""
    with psycopg.connect(lived.url, autocommit=True) as opened, rebuilding(opened, "ready"):
        yield opened


@contextmanager
def rebuilding(link: Connection, phase: str, fold_version: int = FOLD_VERSION) -> Iterator[None]:
    """A rebuild is open."""
    opened = "insert into ledger.rebuilds (generation, fold_version, phase, started_by) values ('b', %s, %s, 'test')"
    link.execute(opened, (fold_version, phase))
    yield
    link.execute("update ledger.rebuilds set ended_at = now(), outcome = 'dropped' where ended_at is null")


def read_all(
    ahead: Ahead, link: Connection, topic: Topic, partitions: tuple[int, ...] = (0, 1), room: int = ROOM
) -> None:
    """One look, with all its steps."""
    ahead._look_at = 0.0
    while ahead.step(link, topic.name, partitions, room):
        pass


def loaded(
    ahead: Ahead, link: Connection, *names: str, stale: tuple[str, ...] = ()
) -> dict[str, SessionState]:
    """The states of a load, by session_id: what a first round does."""
    found = load.find(link, [("default", name) for name in names])
    unsure = [found["default", name].session_no for name in stale]
    entries = load.load(link, list(found.values()), active_slot(link), unsure, ahead=ahead.taken)
    return {entry.key[1]: entry.state for entry in entries}


def number_of(link: Connection, name: str) -> int:
    return load.find(link, [("default", name)])["default", name].session_no


def said(state: SessionState, name: str, number: int) -> list[tuple[str, str]]:
    """What a state has to say once one more turn has come: keys and digests of the turns that moved."""
    came = [read(record.value) for record in turn(name, number)]
    state.extend([one for one in came if isinstance(one, Event)])
    changes = state.take_changes(True, force=True)
    return [(one.turn.key, one.digest) for one in changes.turns]


def test_nothing_is_read_while_no_switch_to_this_fold_can_come(lived: Lived) -> None:
    lived.send(turn("idle", 0))
    ahead = Ahead()
    with psycopg.connect(lived.url, autocommit=True) as link:
        read_all(ahead, link, lived.topic)
        for phase, version in (
            ("folding", FOLD_VERSION),
            ("following", FOLD_VERSION),
            ("comparing", FOLD_VERSION),
            ("ready", FOLD_VERSION + 1),
        ):
            with rebuilding(link, phase, version):
                read_all(ahead, link, lived.topic)
        assert len(ahead) == 0
        with rebuilding(link, "ready"):
            read_all(ahead, link, lived.topic)
        assert len(ahead) == 1
        # It was given up, or it has come: in that case what was given is taken before the next look.
        read_all(ahead, link, lived.topic)
        assert len(ahead) == 1
        read_all(ahead, link, lived.topic)
        assert len(ahead) == 0


def test_only_sessions_at_home_on_its_partitions_are_read(lived: Lived, connection: Connection) -> None:
    lived.send([one for n in range(8) for one in turn(f"home-{n}", 0)])
    homes = dict(rows(lived.url, "select session_no, home_partition from ledger.sessions"))
    assert set(homes.values()) == {0, 1}
    ahead = Ahead()
    read_all(ahead, connection, lived.topic, (1,))
    assert set(ahead._held) == {number for number, home in homes.items() if home == 1}


def test_a_state_that_was_read_ahead_is_the_one_that_the_ledger_gives_now(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("rests", "goes-on", "opens-a-stream", "receipts")
    lived.send([one for name in names for one in turn(name, 0)])
    lived.send([event("receipts", None, stream="spans", receipt_key="a", turn_id="t0")])
    ahead = Ahead()
    read_all(ahead, connection, lived.topic)
    lived.send(
        [
            *turn("goes-on", 1),
            event("goes-on", 10, "turn.started", turn_id="t2"),
            event("opens-a-stream", 0, stream="more", turn_id="t0"),
            event("receipts", None, stream="spans", receipt_key="b", turn_id="t0"),
        ]
    )
    cold = loaded(Ahead(), connection, *names)
    read: list[int] = []

    def reads(link: Connection, number: int) -> list[Event]:
        read.append(number)
        return session_events(link, number)

    monkeypatch.setattr(load, "session_events", reads)

    warm = loaded(ahead, connection, *names)

    assert read == []
    for name in names:
        assert not (warm[name].has_changes or warm[name].has_open_changes), name
        assert said(warm[name], name, 3) == said(cold[name], name, 3), name


def test_who_got_an_event_below_what_was_read_is_read_whole(lived: Lived, connection: Connection) -> None:
    lived.send([event("late", 0), event("late", 2), *turn("punctual", 0)])
    ahead = Ahead()
    read_all(ahead, connection, lived.topic)
    late = number_of(connection, "late")
    assert late in ahead._held
    lived.send([event("late", 1), event("late", 3)])

    found = loaded(ahead, connection, "late", "punctual")

    assert ahead.used == 1
    assert late not in ahead._held
    assert found["late"]._streams["harness", 0, "ledger"].last == 3
    # Standing by longer, it would have been read again.
    read_all(ahead, connection, lived.topic)
    loaded(ahead, connection, "late")
    assert ahead.used == 2


def test_a_state_of_fewer_events_than_the_ledger_counts_is_not_believed(
    lived: Lived, connection: Connection
) -> None:
    lived.send([*turn("robbed", 0), *turn("untouched", 0)])
    ahead = Ahead()
    read_all(ahead, connection, lived.topic)
    robbed = number_of(connection, "robbed")
    # One event fewer was read than the ledger counts, as if another snapshot had been read.
    ahead._held[robbed].events -= 1
    loaded(ahead, connection, "robbed", "untouched")
    assert (ahead.used, robbed in ahead._held) == (1, False)


def test_a_session_whose_projection_is_not_whole_is_not_taken_from_what_was_read(
    lived: Lived, connection: Connection
) -> None:
    lived.send(turn("unsure", 0))
    ahead = Ahead()
    read_all(ahead, connection, lived.topic)
    found = loaded(ahead, connection, "unsure", stale=("unsure",))
    assert ahead.used == 0
    assert [one.turn.key for one in found["unsure"].take_changes(True, force=True).turns] == ["t0"]


def test_what_is_held_has_a_bound_and_those_busy_now_come_first(lived: Lived, connection: Connection) -> None:
    lived.send([one for n in range(6) for one in turn(f"many-{n}", 0)])
    whole = Ahead()
    read_all(whole, connection, lived.topic)
    one = max(held.state.size_bytes for held in whole._held.values())
    ahead = Ahead()
    for _ in range(2):
        read_all(ahead, connection, lived.topic, room=3 * one)
        assert 0 < ahead.bytes <= 3 * one
        assert len(ahead) < len(whole)
    assert ahead.bytes == sum(held.state.size_bytes for held in ahead._held.values())
    last = list(ahead._held)[-1]
    ahead.shrink(ahead.bytes - 1)
    assert last in ahead._held
    ahead.shrink(0)
    assert (len(ahead), ahead.bytes) == (0, 0)


def test_a_step_ends_after_a_while_and_the_next_one_goes_on(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived.send([one for n in range(4) for one in turn(f"slow-{n}", 0)])
    monkeypatch.setattr(reading, "STEP_SECONDS", 1.5)
    seconds = count()
    ahead = Ahead(clock=lambda: float(next(seconds)))
    ahead._look_at = -1.0
    sizes = []
    while ahead.step(connection, lived.topic.name, (0, 1), ROOM):
        sizes.append(len(ahead))
    assert len(sizes) > 2
    assert sizes == list(range(1, len(sizes) + 1))
