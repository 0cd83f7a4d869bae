"""A rebuild of the projections from the ledger: the same to the byte with the same fold, what differs named, a switch that readers do not feel."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.integration.ingesting import at, environment, rows, until_applied, until_projected
from tests.integration.letting_go import apply
from tests.stack import databases, servers
from tests.stack.commands import Running, run
from tests.stack.topics import Record, Topic, create_topic, produce
from turnledger.errors import TurnledgerError
from turnledger.fold import calls, quick, state, usage
from turnledger.replay import compare, shadow
from turnledger.replay import follow as following
from turnledger.replay import pieces as working
from turnledger.replay import rebuild as rebuilding
from turnledger.replay import switch as switching
from turnledger.replay.differences import Differences
from turnledger.replay.drop import drop
from turnledger.replay.follow import Follower
from turnledger.replay.generation import NotNow, Rebuild, open_rebuild, slots
from turnledger.replay.pieces import Pieces
from turnledger.replay.rebuild import OwnHands, Rebuilder, begin, go_back, open_connection
from turnledger.replay.sample import audit
from turnledger.replay.switch import Differs, Switch, Switched
from turnledger.retention.vacuum import Order, Went, vacuum
from turnledger.rollup import many
from turnledger.rollup import worker as rolling
from turnledger.rollup.many import Many
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.rows import Torn
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store import outbox
from turnledger.store.connect import connect
from turnledger.store.read import SessionRef
from turnledger.store.write import day_table

Event = dict[str, Any]
Connection = psycopg.Connection[Any]

VIEWS = (
    "turns", "model_calls", "model_items", "tool_calls", "tool_responses", "net_events", "exec_events", "sessions", "ai_usage", "tool_usage",
    "mcp_usage", "usage_hourly", "findings",
)  # fmt: skip


# --- events -----------------------------------------------------------------------------------------------------------------------


def told(session: str, seq: int | None, type_: str, payload: Event | None = None, **more: Any) -> Event:
    """An event, one second after the one before it."""
    second = at(10 + (seq or 0))
    return {
        "session_id": session,
        "seq": seq,
        "type": type_,
        "occurred_at": second,
        "payload": payload or {},
    } | more


def turn(session: str, first: int, turn_id: str, *inside: tuple[str, Event, Event]) -> list[Event]:
    """A turn that starts at ``first`` and is completed after what is ``inside``: (type, payload, envelope) each."""
    events = [told(session, first, "turn.started", turn_id=turn_id)]
    events += [
        told(session, first + n, type_, payload, turn_id=turn_id, **more)
        for n, (type_, payload, more) in enumerate(inside, 1)
    ]
    last = first + len(inside) + 1
    return [*events, told(session, last, "turn.completed", {"status": "completed"}, turn_id=turn_id)]


def call(message: str, tokens: int, reasoning: int | None = 0, output: int = 5) -> tuple[str, Event, Event]:
    counters = {"input": tokens, "output": output, "cache_read": 0, "reasoning": reasoning}
    payload = {"provider": "anthropic", "model": "claude-opus-4-5", "message_id": message, "usage": counters}
    return "model_call.completed", payload, {}


def running_total(total: int, last: int | None = None) -> tuple[str, Event, Event]:
    """A report of a thread's running total: input tokens alone (contract 8)."""
    payload: Event = {
        "provider": "openai", "model": "gpt-5.1", "counter_kind": "cumulative", "usage_stream": "thread", "provider_thread": "thread",
        "usage": {"input": total, "output": 0, "cache_read": 0},
    }  # fmt: skip
    if last is not None:
        payload["last"] = {"input": last, "output": 0, "cache_read": 0}
    return "usage.reported", payload, {}


def forked(session: str, parent: str) -> Event:
    return told(session, 0, "session.forked", {"parent_session_id": parent})


def sessions() -> list[Event]:
    """Contract 16: C5 (a parent and its fork), C9's turn with a call that has no result, C13's turn a without what comes late; a session with a
    gap and a conflict, one without numbers, one of another tenant, and two calls that reason."""
    copied = (call("m1", 10), call("m2", 20), call("m3", 30))
    requested = ("tool_call.requested", {"tool_name": "bash"}, {"tool_call_id": "t1"})
    orphan = ("tool_call.completed", {"status": "ok"}, {"tool_call_id": "t2"})
    holed = [event for event in turn("holed", 0, "t", call("h1", 7), call("h2", 8)) if event["seq"] != 1]
    unnumbered = [
        told(
            "unnumbered",
            None,
            "net.requested",
            {"domain": "a.example", "decision": "denied"},
            receipt_key=f"r{n}",
        )
        for n in range(3)
    ]
    return [
        *turn("parent", 0, "t", *copied),
        forked("fork", "parent"),
        *turn("fork", 1, "t", *copied, call("m4", 5)),
        *turn("c9", 0, "t", requested, orphan),
        *turn("c13", 0, "a", running_total(20)),
        *turn("c13", 10, "b", running_total(50, 20)),
        *holed,
        holed[0] | {"payload": {"input_preview": "another"}},
        *unnumbered,
        *turn("reasons", 0, "t", call("r1", 100, reasoning=2), call("r2", 100, reasoning=3)),
        *(event | {"tenant": "other"} for event in turn("reasons", 0, "t", call("o1", 40, reasoning=4))),
        *(event | {"tenant": "other"} for event in turn("plain", 0, "t", call("o2", 40))),
    ]


NUMBER = 9
"""Sessions of :func:`sessions`."""


def records(events: list[Event]) -> list[Record]:
    return [
        Record(json.dumps(event).encode(), f"{event.get('tenant', 'default')}/{event['session_id']}".encode())
        for event in events
    ]


# --- a database that a worker wrote -------------------------------------------------------------------------------------------------


@dataclass
class Lived:
    """A topic, its database, and a worker that applies the one to the other."""

    topic: Topic
    url: str
    worker: Running
    sent: int = 0

    def send(self, events: list[Event]) -> None:
        """Until they are applied, projected and summed."""
        produce(self.topic, records(events))
        self.sent += len(events)
        until_applied(self.url, self.topic, self.sent, self.worker)
        until_projected(self.url, self.topic)
        Rollup(RollupSettings(), self.url, PriceBook()).drain()

    def environment(self) -> dict[str, str]:
        return self.topic.environment() | {"TURNLEDGER_DATABASE_URL": self.url}


@pytest.fixture(scope="module")
def lived(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lived]:
    """One for all tests here: each leaves the other slot empty, and live what it sent."""
    url = databases.create(stack.database_url, template=database_template)
    topic = create_topic(stack.kafka_bootstrap, 2)
    log = tmp_path_factory.mktemp("worker") / "log"
    there = Lived(topic, url, Running(("worker",), environment(topic, url), log))
    there.send(sessions())
    yield there
    there.worker.kill9()
    databases.drop(stack.database_url, url)


@pytest.fixture(autouse=True)
def nobody_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """So nobody is waited for until he rests."""
    monkeypatch.setattr(working, "RESTS_SECONDS", 0.0)


@pytest.fixture
def connection(lived: Lived) -> Iterator[Connection]:
    """The connection of the only one who rebuilds. Afterwards the other slot is empty."""
    with open_connection(lived.url) as opened:
        yield opened
        drop(opened, 10)


@contextmanager
def alone(lived: Lived, connection: Connection, there: Rebuild) -> Iterator[Rebuilder]:
    """A rebuild on which this process alone works."""
    pieces = Pieces(lived.url, there, PriceBook())
    yield Rebuilder(connection, there, OwnHands(pieces))
    pieces.close()


@contextmanager
def rebuilt(lived: Lived, connection: Connection, *, back: bool = False) -> Iterator[Rebuilder]:
    """A rebuild that this process did alone, ready to be switched to."""
    there = go_back(connection, by="test") if back else begin(connection, by="test")
    with alone(lived, connection, there) as rebuilder:
        rebuilder.run()
        yield rebuilder


def switched(lived: Lived, connection: Connection, *, back: bool = False, **asked: Any) -> Switched:
    with rebuilt(lived, connection, back=back) as rebuilder:
        return Switch(rebuilder, "test", back=back, **asked).run(10)


def shows_the_same(lived: Lived, rebuilder: Rebuilder) -> None:
    """Readers see after the switch what they saw before it."""
    before = shown(lived.url)
    done = Switch(rebuilder, "test").run(10)
    assert (done.differences, done.uncompared) == (0, 0)
    assert shown(lived.url) == before


def shown(url: str) -> dict[str, list[Any]]:
    """Everything that readers see of the projections, each view sorted."""
    with psycopg.connect(url) as link:
        return {
            view: sorted(link.execute(f"select v::text from turnledger.{view} v".encode()).fetchall())
            for view in VIEWS
        }


# --- the rules ----------------------------------------------------------------------------------------------------------------------


def test_a_rebuild_with_unchanged_code_shows_readers_the_same(lived: Lived, connection: Connection) -> None:
    before = shown(lived.url)
    assert [len(before[view]) for view in ("sessions", "turns")] == [NUMBER, 9]

    done = switched(lived, connection)

    assert (done.differences, done.digest, done.uncompared) == (0, None, 0)
    assert slots(connection).active.generation == done.shown != done.left
    assert shown(lived.url) == before
    found = run("verify", "--settle", "5", environment=lived.environment())
    assert found.stdout.splitlines()[-1] == "verify: all invariants hold", found.stdout


def test_a_session_that_is_folded_piece_by_piece_is_the_same_to_the_byte(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = (
        turn("late", 0, "a", call("l1", 3))
        + turn("late", 10, "b", call("l2", 4))
        + turn("late", 20, "c", call("l3", 5))
    )
    twice = [
        *(event | {"stream": "old"} for event in turn("twice", 0, "t", call("w1", 7))),
        *(event | {"stream": "other"} for event in turn("twice", 0, "u", call("w2", 8))),
        told("twice", 0, "stream.superseded", {"stream": "old", "reason": "a newer reader"})
        | {"occurred_at": at(500)},
    ]
    lived.send([late[n] for n in (4, 0, 8, 1, 5, 6, 2, 7, 3)])
    lived.send(twice)
    before = shown(lived.url)
    again: list[int] = []
    real = shadow.LongFold._whole
    monkeypatch.setattr(shadow, "LONG_EVENTS", 0)
    monkeypatch.setattr("turnledger.store.read.PIECE_EVENTS", 2)
    monkeypatch.setattr(state, "CLOSED_BUDGET", 0)
    monkeypatch.setattr(
        shadow.LongFold, "_whole", lambda fold: (again.append(fold.entry.session_no), real(fold))
    )

    done = switched(lived, connection)

    assert (done.differences, done.uncompared) == (0, 0)
    assert shown(lived.url) == before
    named = rows(
        lived.url, "select session_id from ledger.sessions where session_no = any(%s) order by 1", again
    )
    assert ("twice",) in named
    assert ("late",) not in named


def test_the_memory_of_a_fold_does_not_follow_the_length_of_a_session(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "LONG_EVENTS", 200)
    monkeypatch.setattr("turnledger.store.read.PIECE_EVENTS", 200)
    monkeypatch.setattr(state, "CLOSED_BUDGET", 0)
    request = {"domain": "a.example", "decision": "allowed"}
    for session, turns in (("shorter", 50), ("longer", 400)):
        events = []
        for number in range(turns):
            inside = [("net.requested", request, {})] * 18
            events += turn(session, 20 * number, f"t{number}", *inside)
        for event in events:
            event["occurred_at"] = at(event["seq"] / 10)
        apply(database, session, [json.dumps(event).encode() for event in events], rounds=8)
    peaks = {}
    with connect(database, "test", autocommit=True) as link:
        for number, session in rows(
            database, "select session_no, session_id from ledger.sessions order by 1"
        ):
            tracemalloc.start()
            with link.transaction():
                done = shadow.fold_sessions(link, "projection_b", "projection_a", [number], fresh=True)
            peaks[session] = (done.events, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        live, other = (
            compare.differing(link, one, two, [1, 2], sums=False)
            for one, two in (("projection_a", "projection_b"), ("projection_b", "projection_a"))
        )
    assert (live, other) == ({}, {})
    (few, little), (many, much) = peaks["shorter"], peaks["longer"]
    assert (few, many) == (1000, 8000)
    assert much / little < 2


def test_what_comes_after_a_switch_is_told_as_if_there_had_been_none(
    lived: Lived, connection: Connection
) -> None:
    c9 = "select revision, grade from turnledger.turns where session_id = 'c9'"
    tools = "select call_id, pairing from turnledger.tool_calls where session_id = 'c9' order by 1"
    assert rows(lived.url, c9) == [(1, "partial")]
    assert rows(lived.url, tools) == [("t1", "missing_result"), ("t2", "orphan_result")]

    switched(lived, connection)
    lived.send(
        [
            told("c9", 4, "tool_call.completed", {"status": "ok"}, turn_id="t", tool_call_id="t1"),
            told("c13", 2, "usage.reported", running_total(30)[1], turn_id="a") | {"seq": 3},
        ]
    )

    assert rows(lived.url, c9) == [(2, "partial")]
    assert rows(lived.url, tools) == [("t1", "late_result"), ("t2", "orphan_result")]
    c13 = "select turn_key, total_input_tokens from turnledger.turns where session_id = 'c13' order by 1"
    assert rows(lived.url, c13) == [("a", 30), ("b", 20)]
    owned = "select session_id, total_input_tokens from turnledger.sessions where session_id in ('parent', 'fork') order by 1"
    assert rows(lived.url, owned) == [("fork", 5), ("parent", 60)]
    found = run("verify", "--settle", "5", environment=lived.environment())
    assert found.stdout.splitlines()[-1] == "verify: all invariants hold", found.stdout


def test_what_waited_to_be_projected_is_whole_in_the_generation_that_is_switched_to(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "QUIET_SECONDS", 0.05)
    last = (
        "select p.partition, p.flushed_batch, max(b.batch_no) from ledger.ingest_progress p "
        "join ledger.ingest_batches b using (topic, partition) group by 1, 2"
    )
    with rebuilt(lived, connection) as rebuilder:
        before = shown(lived.url)
        connection.execute("update ledger.ingest_progress set flushed_batch = 0")
        Switch(rebuilder, "test").run(0)
    assert shown(lived.url) == before
    found = rows(lived.url, last)
    assert len(found) == 2
    assert [row for row in found if row[1] != row[2]] == []
    kept = "select distinct batch_no from ledger.projection_progress where generation <> (select generation from turnledger.active)"
    assert rows(lived.url, kept) == [(0,)]


def test_one_can_return_to_the_generation_that_was_left(lived: Lived, connection: Connection) -> None:
    first = switched(lived, connection)
    lived.send(turn("parent", 20, "later", call("p9", 9)))
    before = shown(lived.url)

    returned = switched(lived, connection, back=True)

    assert (returned.left, returned.shown) == (first.shown, first.left)
    assert shown(lived.url) == before
    kept = "select from_generation, to_generation, back, switched_by from ledger.switches order by switch_no desc limit 1"
    assert rows(lived.url, kept) == [(first.shown, first.left, True, "test")]


def test_a_changed_fold_is_named_session_by_session_and_not_switched_to(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = usage.buckets

    def twice(raw: Any, convention: str) -> Any:
        """Reasoning counted once more, though it is a part of the output (contract 8)."""
        values, negative = real(raw, convention)
        output, reasoning = values[5], values[6]
        return (*values[:5], output + (reasoning or 0) if output is not None else None, *values[6:]), negative

    for module in (usage, calls, quick):
        if hasattr(module, "buckets"):
            monkeypatch.setattr(module, "buckets", twice)
    with rebuilt(lived, connection) as rebuilder:
        found = Differences(connection, open_rebuild(connection)).told(10)
        named = [(one["tenant"], one["session_id"]) for one in found["differences"]]
        assert (found["sessions"], named) == (2, [("default", "reasons"), ("other", "reasons")])
        outputs = {
            (field["live"], field["rebuilt"]): [event["seq"] for event in field["events"]]
            for field in found["differences"][0]["fields"]
            if field["table"] == "model_calls" and field["field"] == "output_tokens"
        }
        assert outputs == {(5, 7): [1], (5, 8): [2]}
        with pytest.raises(Differs, match="2 sessions differ"):
            Switch(rebuilder, "test").run(5)
        assert slots(connection).other.state == "building"

        outbox.switch(connection, on=True)
        ((asked_at,),) = rows(lived.url, "select clock_timestamp()")
        done = Switch(rebuilder, "somebody", accept="reasoning is billed apart").run(5)
        outbox.switch(connection, on=False)
    sent = "select s.tenant, s.session_id, o.turn_key from ledger.outbox o join ledger.sessions s using (session_no) order by 1"
    assert rows(lived.url, sent) == [("default", "reasons", "t"), ("other", "reasons", "t")]

    assert (done.differences, done.digest) == (2, bytes.fromhex(found["digest"]))
    kept = (
        "select switched_by, why, differences, encode(diff_sha256, 'hex'), switched_at between %s and clock_timestamp() from ledger.switches "
        "order by switch_no desc limit 1"
    )
    assert rows(lived.url, kept, asked_at) == [
        ("somebody", "reasoning is billed apart", 2, found["digest"], True)
    ]
    revisions = "select tenant, session_id, revision, output_tokens from turnledger.turns where session_id in ('reasons', 'plain') order by 1, 2"
    assert rows(lived.url, revisions) == [
        ("default", "reasons", 2, 15),
        ("other", "plain", 1, 5),
        ("other", "reasons", 2, 9),
    ]
    monkeypatch.undo()
    switched(lived, connection, back=True, accept="the other fold was wrong")


def test_a_session_that_is_vacuumed_before_or_during_a_rebuild_keeps_its_rollups(
    lived: Lived, connection: Connection
) -> None:
    lived.send(
        [
            event
            for session in ("gone-1", "gone-2")
            for event in (*turn(session, 0, "t", call(session, 12)), told(session, 3, "session.ended", {"status": "stopped"}))
        ]
    )  # fmt: skip
    ref = {name: SessionRef(*rows(lived.url, "select session_no, tenant, session_id from ledger.sessions where session_id = %s", name)[0])
           for name in ("gone-1", "gone-2")}  # fmt: skip
    order = Order(by="test", why="test", archived=False)
    with connect(lived.url, "test", autocommit=True) as other:
        assert isinstance(vacuum(other, ref["gone-1"], order), Went)
        Rollup(RollupSettings(), lived.url, PriceBook()).drain()
        with rebuilt(lived, connection) as rebuilder:
            assert isinstance(vacuum(other, ref["gone-2"], order), Went)
            Rollup(RollupSettings(), lived.url, PriceBook()).drain()
            before = shown(lived.url)
            done = Switch(rebuilder, "test").run(10)
    assert done.differences == 0
    assert shown(lived.url) == before
    kept = "select session_id, detail, total_input_tokens from turnledger.sessions where session_id like 'gone%%' order by 1"
    assert rows(lived.url, kept) == [("gone-1", "vacuumed", 12), ("gone-2", "vacuumed", 12)]


def test_an_audit_finds_the_session_that_was_changed_by_hand_and_forgets_it_once_it_is_mended(
    lived: Lived, connection: Connection
) -> None:
    slot = slots(connection).active.slot
    change = (
        f"update {slot}.model_calls set output_tokens = output_tokens %s 1 "
        "where session_no = (select session_no from ledger.sessions where session_id = 'fork')"
    )
    finding = "select session_id, severity, count from turnledger.findings where \"check\" = 'projection_differs_from_fold'"
    connection.execute((change % "+").encode())

    found = audit(connection, 1.0, by="test", settle_seconds=0)

    assert [(ref.session_id, count) for ref, count in found.differing] == [("fork", 4)]
    assert rows(lived.url, finding) == [("fork", "error", 4)]
    connection.execute((change % "-").encode())
    assert audit(connection, 1.0, by="test", settle_seconds=0).differing == []
    assert rows(lived.url, finding) == []
    kept = "select differing, unsettled, audited_by from ledger.audits order by audit_no desc limit 2"
    assert rows(lived.url, kept) == [(0, 0, "test"), (1, 0, "test")]


def test_two_rebuilds_at_once_are_refused_with_a_sentence(lived: Lived, connection: Connection) -> None:
    begin(connection, by="the first")
    with pytest.raises(NotNow, match=r"begun by the first at .* is being worked on by another process"):
        open_connection(lived.url)


TURNS = "select s.session_id, count(*) from {}.turns t join ledger.sessions s using (session_no) where s.session_id like 'moved%%' group by 1 order by 1"


def test_what_comes_in_while_pieces_are_folded_is_followed_or_left_to_its_piece(
    lived: Lived, connection: Connection
) -> None:
    lived.send(turn("moved-old", 0, "o", call("o1", 4)))
    there = begin(connection, by="test")
    lived.send(turn("moved-old", 3, "p", call("o2", 4)) + turn("moved-new", 0, "n", call("n1", 3)))
    with alone(lived, connection, there) as rebuilder:
        followed = rebuilder.follower.run(mark=False)

        assert followed.events == 3
        assert rows(lived.url, TURNS.format(there.slot)) == [("moved-new", 1)]
        # Once more, from where the day ended a moment ago.
        lived.send(turn("moved-new", 3, "q", call("n2", 3)))
        assert rebuilder.follower.run(mark=False).events == 3
        assert rows(lived.url, TURNS.format(there.slot)) == [("moved-new", 2)]
        rebuilder.run()
        assert rows(lived.url, TURNS.format(there.slot)) == [("moved-new", 2), ("moved-old", 2)]
        shows_the_same(lived, rebuilder)


def test_who_was_followed_without_a_mark_is_marked_though_nothing_more_comes_and_a_pass_fails(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = "select distinct session_id from ledger.shadow_marks join ledger.sessions using (session_no)"
    with rebuilt(lived, connection) as rebuilder:
        follower = rebuilder.follower
        assert rows(lived.url, marked) == []
        lived.send(turn("unmarked", 0, "u", call("u1", 3)))
        assert follower.run(mark=False).events == 3
        # The roll-up of the live generation may have marked it too.
        connection.execute("delete from ledger.shadow_marks")

        def failing(self: Follower) -> None:
            mark(self)
            raise TurnledgerError("in the middle")

        mark = Follower.mark
        with monkeypatch.context() as patch, pytest.raises(TurnledgerError, match="in the middle"):
            patch.setattr(Follower, "mark", failing)
            follower.run()
        assert rows(lived.url, marked) == []
        assert follower.run().events == 0

        assert rows(lived.url, marked) == [("unmarked",)]
        shows_the_same(lived, rebuilder)


def test_sessions_that_move_after_they_were_rolled_up_are_rolled_up_together(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived.send([*turn("again-1", 0, "t", call("a1", 4)), *turn("again-2", 0, "t", call("a2", 4))])
    together: list[int] = []
    real = rolling.roll_up_many

    def counted(*given: Any, **named: Any) -> Many:
        done = real(*given, **named)
        together.append(len(done.done))
        return done

    with rebuilt(lived, connection) as rebuilder:
        monkeypatch.setattr(rolling, "roll_up_many", counted)
        # More of a turn that was told, another hour, and a call that says something else now.
        moved = call("a3", 5)[1]
        lived.send(
            [
                told("again-1", 3, "model_call.completed", moved, turn_id="t"),
                *turn("again-1", 4, "u", call("a4", 6)),
                *({**one, "occurred_at": at(9000 + one["seq"])} for one in turn("again-2", 3, "u", call("a5", 7))),
            ]
        )  # fmt: skip
        rebuilder.settle(5)
        assert max(together) == 2
        shows_the_same(lived, rebuilder)


def test_a_long_session_is_not_read_beside_others(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived.send([event for n in range(4) for event in turn("long-one", 3 * n, f"t{n}", call(f"long{n}", 4))])
    lived.send(turn("short-one", 0, "t", call("short", 4)))
    read: list[str] = []
    real = many.load

    def counted(do: Any, number: int, turns: Any) -> Any:
        loaded = real(do, number, turns)
        read.append(loaded.rows.session_id)
        return loaded

    monkeypatch.setattr(many, "WHOLE", 3)
    monkeypatch.setattr(many, "load", counted)
    with rebuilt(lived, connection) as rebuilder:
        assert "short-one" in read
        assert "long-one" not in read
        shows_the_same(lived, rebuilder)


def test_of_sessions_that_are_rolled_up_together_one_that_is_written_meanwhile_holds_nobody_up(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived.send([event for n in range(3) for event in turn(f"torn-{n}", 0, "t", call(f"torn{n}", 4))])
    numbers = [row[0] for row in rows(lived.url, "select session_no from ledger.sessions where session_id like 'torn%%' order by 1")]  # fmt: skip
    real, torn = many.set_rows, [numbers[1]]

    def written_meanwhile(do: Any, number: int, *given: Any) -> Any:
        outcome = real(do, number, *given)
        if number in torn:
            torn.remove(number)
            raise Torn(number)
        return outcome

    with rebuilt(lived, connection) as rebuilder:
        lived.send([event for n in range(3) for event in turn(f"torn-{n}", 3, "u", call(f"torn-u{n}", 5))])
        monkeypatch.setattr(many, "set_rows", written_meanwhile)
        rebuilder.follower.run()
        pieces = Pieces(lived.url, rebuilder.rebuild, PriceBook())
        pieces.roll_up()
        left = "select distinct session_no from ledger.shadow_marks"
        assert (torn, rows(lived.url, left)) == ([], [(numbers[1],)])
        pieces.close()
        rebuilder.settle(5)
        shows_the_same(lived, rebuilder)


def test_who_is_rolled_up_again_is_compared_again_though_nothing_came_in(
    lived: Lived, connection: Connection
) -> None:
    number = "(select session_no from ledger.sessions where session_id = 'parent')"
    with rebuilt(lived, connection) as rebuilder:
        slot = rebuilder.rebuild.slot
        connection.execute(
            f"update {slot}.turns set stop_why = 'planted' where session_no = {number}".encode()
        )
        rebuilder.settle(5)
        assert compare.diff(connection).sessions == []
        connection.execute(f"insert into ledger.shadow_marks (session_no) values ({number})".encode())
        with pytest.raises(Differs, match="1 session differs"):
            Switch(rebuilder, "test").run(5)


def test_who_moves_while_it_is_compared_stays_in_doubt(lived: Lived, connection: Connection) -> None:
    with rebuilt(lived, connection):
        ((number,),) = rows(lived.url, "select session_no from ledger.sessions where session_id = 'parent'")
        compare.doubt(connection, [number])
        ((looked,),) = rows(lived.url, "select clock_timestamp()::text")
        compare.doubt(connection, [number])
        compare.keep(connection, [compare.Difference(number, ("turns",), Decimal(1))], looked)
        compare.clear(connection, [number], looked)
        assert compare.in_doubt(connection) == 1
        compare.clear(connection, [number])
        assert compare.in_doubt(connection) == 0


@pytest.mark.parametrize(("phase", "waits"), [("following", "WAITS_SECONDS"), ("ready", "SWITCHED_SECONDS")])
def test_a_session_that_goes_on_moving_is_rolled_up_seldom(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch, phase: str, waits: str
) -> None:
    with rebuilt(lived, connection) as rebuilder:
        monkeypatch.setattr(working, "RESTS_SECONDS", 60.0)
        monkeypatch.setattr(working, waits, 600.0)
        pieces = Pieces(lived.url, replace(rebuilder.rebuild, phase=phase), PriceBook())
        for ago, first, left in ((0, 0, 1), (61, 0, 0), (0, 599, 1), (0, 601, 0)):
            mark = "insert into ledger.shadow_marks (session_no, at) select min(session_no), now() - make_interval(secs => %s) from ledger.sessions"
            connection.execute(mark, (ago,))
            if first:
                connection.execute(mark, (first,))
            pieces.roll_up()
            assert rows(lived.url, "select count(distinct session_no) from ledger.shadow_marks") == [(left,)]
            connection.execute("delete from ledger.shadow_marks")
        pieces.close()


TOO_NEAR = (0, 1_000_000)


@pytest.mark.parametrize(
    ("name", "looks", "told"),
    [
        ("near", following.LOOKS, 0),
        ("further", (TOO_NEAR, following.LOOKS[-1]), 0),
        ("nowhere", (TOO_NEAR,), 1),
    ],
)
def test_a_first_pass_looks_where_a_day_ends_and_else_tells_the_index_what_it_does_not_know(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch, name: str, looks: Any, told: int
) -> None:
    monkeypatch.setattr(following, "LOOKS", looks)
    there = begin(connection, by="test")
    day = day_table(rows(lived.url, "select ledger.today()")[0][0])
    unknown = "select brin_summarize_new_values(%s::regclass)"
    lived.send(turn(f"told-{name}", 0, "t", call(f"i-{name}", 3)))
    connection.execute("select brin_desummarize_range(%s::regclass, 0)", (f"{day}_batch",))

    done = Follower(connection, there).run()

    assert done.events
    assert rows(lived.url, unknown, f"{day}_batch") == [(1 - told,)]


def test_who_lags_looks_between_what_earlier_passes_saw(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the end of the day each pass would read all that came since: the further behind, the slower."""
    there = begin(connection, by="test", tenant="nobody")
    looked: list[tuple[str, str]] = []
    real = shadow.stored_rows

    def noted(link: Connection, statement: bytes, values: Mapping[str, Any]) -> Iterable[shadow.StoredRow]:
        if "past" in values:
            looked.append((values["place"], values["past"]))
        return real(link, statement, values)

    monkeypatch.setattr(following, "stored_rows", noted)
    monkeypatch.setattr(following, "PASS_EVENTS", 1)
    follower = Follower(connection, there)
    day = day_table(rows(lived.url, "select ledger.today()")[0][0])
    ends = []
    for wave in range(4):
        for number in range(3):
            names = [f"{wave}-{number}-{one}" for one in range(12)]
            lived.send([event for name in names for event in turn(f"lags-{name}", 0, "t", call(name, 12))])
        ends.append(rows(lived.url, f"select pg_relation_size('{day}') / 8192")[0][0])
        follower.run()
    assert ends == sorted(set(ends))
    passes = 4
    while follower.run().more:
        passes += 1

    # Each pass takes one batch and looks once: those of a wave stand before the end that the first pass after it saw.
    assert len(looked) == passes + 1
    assert [past for _, past in looked] == [f"({end},0)" for end in ends for _ in range(len(looked) // 4)]
    with alone(lived, connection, there) as rebuilder:
        rebuilder.run()
        shows_the_same(lived, rebuilder)


def test_a_requeue_may_be_the_last_that_came(lived: Lived, connection: Connection) -> None:
    """Its number is greater than that of any batch of a round."""
    there = begin(connection, by="test", tenant="nobody")
    lived.send(turn("letters", 0, "t", call("letter", 3)))
    requeued = connection.execute(
        "insert into ledger.requeue_batches (batch_no, topic, partition, letters, accepted, duplicates, conflicts, requeued_by) "
        "select nextval(pg_get_serial_sequence('ledger.ingest_batches', 'batch_no')), min(topic), 0, 0, 0, 0, 0, 'test' from ledger.ingest_batches "
        "returning batch_no"
    ).fetchone()
    follower = Follower(connection, there)
    what = following.beyond(connection, there.generation)
    assert requeued is not None and max(what.batches) == requeued[0]

    assert follower.run().events
    assert not following.beyond(connection, there.generation)


def test_an_event_that_strayed_is_found_by_the_index_and_the_others_are_not_read_twice(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = begin(connection, by="test", tenant="nobody")
    for number in range(8):
        lived.send(
            [
                event
                for one in range(6)
                for event in turn(f"strays-{number}", 9 * one, f"t{one}", call(f"{number}-{one}", 3))
            ]
        )
    read: list[tuple[int, int]] = []
    real = shadow.stored_rows

    def noted(link: Connection, statement: bytes, values: Mapping[str, Any]) -> Iterable[shadow.StoredRow]:
        found = list(real(link, statement, values))
        if "past" in values:
            read.extend((row[1], row[2]) for row in found)
        return found

    monkeypatch.setattr(following, "stored_rows", noted)
    monkeypatch.setattr(following, "STRAY", 1)
    monkeypatch.setattr(Follower, "_looks", lambda *_: [(1, 2)])

    done = Follower(connection, there).run()

    assert len(set(read)) == len(read) == done.events > 100
    with alone(lived, connection, there) as rebuilder:
        rebuilder.run()
        shows_the_same(lived, rebuilder)


def test_what_a_history_held_already_is_not_read_again(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = begin(connection, by="test", tenant="nobody")
    for number in range(4):
        lived.send(turn("behind", 3 * number, f"t{number}", call(f"b{number}", 3)))
    monkeypatch.setattr(following, "PASS_EVENTS", 4)
    read: list[tuple[int, int]] = []
    real = shadow.by_session

    def noted(found: Iterable[shadow.StoredRow]) -> dict[int, list[shadow.Stored]]:
        given = list(found)
        read.extend((row[1], row[2]) for row in given)
        return real(given)

    monkeypatch.setattr(shadow, "by_session", noted)
    monkeypatch.setattr(following, "by_session", noted)
    follower = Follower(connection, there)

    first = follower.run()
    assert first.more
    while follower.run().more:
        pass
    assert len(read) == len(set(read)) > first.events
    with alone(lived, connection, there) as rebuilder:
        rebuilder.run()
        shows_the_same(lived, rebuilder)


def test_where_much_came_in_all_share_what_moved(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "FOLLOWED_EVENTS", 2)
    there = begin(connection, by="test", tenant="nobody")
    lived.send([event for n in range(3) for event in turn(f"much-{n}", 0, "t", call(f"much{n}", 4))])
    with alone(lived, connection, there) as rebuilder:
        rebuilder.run()

        kinds = "select kind, sum(cardinality(sessions)) from ledger.rebuild_chunks where rebuild_no = %s and kind <> 'carry' group by 1 order by 1"
        [(again, moved), (compared, _)] = connection.execute(kinds, (there.rebuild_no,)).fetchall()
        assert (again, moved, compared) == ("again", 3, "compare")
        shows_the_same(lived, rebuilder)


def test_a_rebuild_of_one_tenant_carries_the_others_over(
    lived: Lived, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = slots(connection).active.slot
    for tenant, session in (("other", "plain"), ("default", "parent")):
        connection.execute(
            f"update {live}.turns t set stop_why = 'planted' from ledger.sessions s "
            f"where s.session_no = t.session_no and s.tenant = '{tenant}' and s.session_id = '{session}'"
        )
    folded: list[int] = []
    real = working.fold_sessions

    def counted(link: Connection, slot: str, live: str, numbers: list[int], *, fresh: bool) -> Any:
        folded.extend(numbers)
        return real(link, slot, live, numbers, fresh=fresh)

    monkeypatch.setattr(working, "fold_sessions", counted)
    rebuild = begin(connection, by="test", tenant="other")
    worked = Pieces(lived.url, rebuild, PriceBook())
    rebuilder = Rebuilder(connection, rebuild, OwnHands(worked))
    rebuilder.run()
    named = [(tenant, session) for _, tenant, session, _ in compare.diff(connection).sessions]
    assert named == [("other", "plain")]
    names = rows(
        lived.url,
        "select tenant, session_id from ledger.sessions where session_no = any(%s) order by 2",
        folded,
    )
    assert names == [("other", "plain"), ("other", "reasons")]
    Switch(rebuilder, "test", accept="one tenant alone").run(10)
    worked.close()
    planted = "select distinct tenant, session_id from turnledger.turns where stop_why = 'planted'"
    assert rows(lived.url, planted) == [("default", "parent")]
