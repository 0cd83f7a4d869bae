"""Sessions that are rolled up together come to what each by itself comes to, and one of them holds up none of the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.projected import (
    PRICE,
    SLOT,
    Event,
    Projector,
    assert_equal_to_fold,
    c5,
    call,
    forked,
    lines,
    meanwhile,
    plain,
    project,
    shown,
    started,
    turn,
)
from turnledger.pricing import Price
from turnledger.rollup import blocks, many, worker
from turnledger.rollup.many import Many, roll_up_many
from turnledger.rollup.rows import Statements, Torn
from turnledger.rollup.session import Outcome, roll_up_session
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    opened = connect(database, "test", autocommit=True)
    load_as_microseconds(opened)
    yield opened
    opened.close()


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Many]:
    """What became of sessions each time that some were rolled up together."""
    told: list[Many] = []

    def listening(*given: Any, **named: Any) -> Many:
        told.append(roll_up_many(*given, **named))
        return told[-1]

    monkeypatch.setattr(worker, "roll_up_many", listening)
    return told


def alone(name: str, turns: int = 1) -> list[Event]:
    """A session with calls that no other has, some with a tool, an unknown model or none of their own number."""
    events = [started(name)]
    for n in range(turns):
        first = 1 + 6 * n
        inside = [
            plain(name, first, "turn.started"),
            call(name, first + 1, f"{name}-{n}", 10 + n),
            call(name, first + 2, f"{name}-{n}b", 5, payload={"model": "unheard-of" if n % 3 else "claude-haiku-4-5"}),
            plain(name, first + 3, "tool_call.requested", {"tool_name": "bash"}, tool_call_id=f"x{n}"),
            plain(name, first + 4, "tool_call.completed", {"status": "ok", "duration_ms": 7}, tool_call_id=f"x{n}"),
            plain(name, first + 5, "turn.completed", {"status": "completed"}),
        ]  # fmt: skip
        for event in inside:
            event["turn_id"] = f"t{n}"
            event["occurred_at"] = f"2026-05-01T{n % 24:02d}:00:00Z"
        events += inside
    return events


def drain(database: str) -> int:
    return Rollup(RollupSettings(), database, PRICE).drain()


def numbers_of(connection: Connection) -> dict[str, int]:
    return dict(connection.execute("select session_id, session_no from ledger.sessions").fetchall())


def marked(connection: Connection) -> list[tuple[int, list[int] | None]]:
    return connection.execute("select session_no, turns from ledger.marks order by 1, 2").fetchall()


@pytest.mark.parametrize("seed", range(3))
def test_bit_by_bit_sessions_of_any_kind_end_as_fold_says(
    seed: int, database: str, connection: Connection, found: list[Many], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Blocks of two turns, and sessions that are short, that have shares and are read whole, and that are read by blocks alone.
    monkeypatch.setattr(blocks, "FAN", 2)
    monkeypatch.setattr(blocks, "LONG", 2)
    monkeypatch.setattr(many, "WHOLE", 6)
    chance = random.Random(seed)
    events = {f"s{n}": alone(f"s{n}", turns) for n, turns in enumerate((1, 2, 3, 5, 8, 9, 14))}
    events |= c5()
    events["child"] = [
        {**event, "parent_session_id": "s1"} if event["seq"] else event for event in alone("child", 4)
    ]
    # Two that share a call without a word.
    events["twin"] = [{**event, "session_id": "twin"} for event in events["s3"]]
    ingest, steps = Projector(connection), 8
    late = {name: set(chance.sample(range(len(said)), len(said) // 8)) for name, said in events.items()}
    for step in range(1, steps + 1):
        for name in chance.sample(sorted(events), len(events) if step == steps else 7):
            upto = max(1, len(events[name]) * step // steps)
            there = (
                events[name]
                if step == steps
                else [event for at, event in enumerate(events[name][:upto]) if at not in late[name]]
            )
            ingest.project(lines({name: there or events[name][:1]}))
        drain(database)
    assert_equal_to_fold(connection, lines(events))
    numbers = numbers_of(connection)
    together = {number for one in found for number in one.done}
    apart = {number for one in found for number in one.apart}
    assert together >= {numbers[f"s{n}"] for n in (0, 2, 4, 5, 6)}
    assert apart >= {numbers[name] for name in ("f", "r1", "child", "twin")}
    assert together.isdisjoint({numbers[name] for name in ("f", "child")})
    # The longest was read by its blocks too, once it was too long to be read whole.
    shares = connection.execute(f"select count(*) from {SLOT}.rollup_shares where session_no = %s", (numbers["s6"],))  # type: ignore[call-overload]  # fmt: skip
    assert shares.fetchone() == (1 + 8 + 4 + 2 + 1,)
    assert sum(numbers["s6"] in one.done for one in found) > 1


def test_a_long_session_moves_beside_others_by_its_blocks(
    database: str, connection: Connection, found: list[Many], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = {"long": alone("long", 100), "short": alone("short")}
    ingest = Projector(connection)
    ingest.project(lines({**events, "long": events["long"][:-6]}))
    drain(database)
    number = numbers_of(connection)["long"]
    assert [number in one.apart for one in found] == [True]
    read: list[int | None] = []
    real = many.load

    def listening(do: Statements, session_no: int, turns: Any) -> Any:
        read.append(None if turns is None else len(turns))
        return real(do, session_no, turns)

    monkeypatch.setattr(many, "load", listening)
    changed = {**events["short"][2], "payload": {**events["short"][2]["payload"], "latency_ms": 41}}
    events["short"][2] = changed
    ingest.project(lines(events))
    drain(database)
    assert number in found[-1].done
    assert sorted(map(str, read)) == ["8", "None"]
    assert_equal_to_fold(connection, lines(events))


def test_one_whose_rows_cannot_be_set_holds_up_none_of_the_others(
    database: str, connection: Connection
) -> None:
    events = {name: alone(name) for name in ("a", "b", "c")}
    events["b"][2]["payload"]["model"] = "one-too-many"
    project(connection, lines(events))
    asked = []

    def price(provider: Any, model: Any, *given: Any, **named: Any) -> Price:
        if model == "one-too-many":
            asked.append(model)
            raise OverflowError("no column holds it")
        return PRICE(provider, model, *given, **named)

    rolling = Rollup(RollupSettings(), database, price)
    assert rolling.tick().done == 2
    assert [row["session_id"] for row in shown(connection, "sessions")] == ["a", "c"]
    assert len(rolling.health.refused) == 1
    # Together, by itself, and then it is left alone for a while.
    assert len(asked) == 2
    assert rolling.tick().done == 0
    assert len(asked) == 2
    assert len(marked(connection)) == 1
    rolling.close()


def test_one_that_is_written_meanwhile_keeps_its_marks_and_the_others_are_set(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = {name: alone(name, 2) for name in ("a", "b", "c")}
    ingest = Projector(connection)
    ingest.project(lines(events))
    number = numbers_of(connection)["b"]
    real, torn = many.set_rows, [number]

    def written_meanwhile(do: Any, session_no: int, *given: Any) -> Outcome:
        outcome = real(do, session_no, *given)
        if session_no in torn:
            torn.remove(session_no)
            raise Torn(session_no)
        return outcome

    monkeypatch.setattr(many, "set_rows", written_meanwhile)
    rolling = Rollup(RollupSettings(), database, PRICE)
    tick = rolling.tick()
    assert (tick.done, tick.met) == (2, 1)
    assert [row["session_id"] for row in shown(connection, "sessions")] == ["a", "c"]
    assert connection.execute(f"select count(*) from {SLOT}.call_claims where session_no = %s", (number,)).fetchone() == (0,)  # type: ignore[call-overload]  # fmt: skip
    assert marked(connection) == [(number, [1, 2])]
    rolling.drain()
    assert_equal_to_fold(connection, lines(events))


def test_marks_that_come_meanwhile_stay(database: str, connection: Connection) -> None:
    project(connection, lines({name: alone(name) for name in ("a", "b")}))
    numbers = sorted(numbers_of(connection).values())
    with connect(database, "other", autocommit=True) as other:
        mark = "insert into ledger.marks (session_no) select unnest(%s::int8[])"
        price = meanwhile(lambda: other.execute(mark, (numbers,)))
        assert roll_up_many(Statements(connection, SLOT), numbers, price).done == numbers
    assert marked(connection) == [(number, None) for number in numbers]


def test_when_the_power_goes_out_all_marks_are_there_and_nothing_has_changed(
    connection: Connection,
) -> None:
    project(connection, lines({name: alone(name) for name in ("a", "b")}))
    numbers, before, asked = sorted(numbers_of(connection).values()), marked(connection), []

    def price(*given: Any, **named: Any) -> Price:
        asked.append(1)
        if len(asked) > 2:
            raise RuntimeError("the power goes out here")
        return PRICE(*given, **named)

    with pytest.raises(RuntimeError):
        roll_up_many(Statements(connection, SLOT), numbers, price)
    assert marked(connection) == before
    assert shown(connection, "sessions") == []


def test_what_another_worker_has_is_left_to_it_and_who_was_set_is_not_due(
    database: str, connection: Connection
) -> None:
    project(connection, lines({name: alone(name) for name in ("a", "b", "c")}))
    numbers = sorted(numbers_of(connection).values())
    with connect(database, "other", autocommit=True) as other:
        load_as_microseconds(other)
        seen: list[Many] = []
        price = meanwhile(lambda: seen.append(roll_up_many(Statements(other, SLOT), numbers, PRICE)))
        assert roll_up_session(Statements(connection, SLOT), numbers[0], price) is Outcome.SET
    assert seen == [Many(done=numbers[1:])]
    project(connection, lines({name: alone(name) for name in ("a", "b", "c")}))
    do = Statements(connection, SLOT)
    assert roll_up_many(do, numbers, PRICE) == Many()
    assert roll_up_many(do, numbers, PRICE, now=True) == Many(done=numbers)


def test_each_of_several_workers_takes_some(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "SESSIONS", 2)
    project(connection, lines({f"s{n}": alone(f"s{n}") for n in range(4)}))
    numbers = sorted(numbers_of(connection).values())
    with connect(database, "other", autocommit=True) as other:
        load_as_microseconds(other)
        seen: list[Many] = []
        price = meanwhile(lambda: seen.append(roll_up_many(Statements(other, SLOT), numbers, PRICE)))
        assert roll_up_many(Statements(connection, SLOT), numbers, price).done == numbers[:2]
    assert seen == [Many(done=numbers[2:])]


def test_one_that_learns_of_its_parent_late_is_rolled_up_apart(
    database: str, connection: Connection, found: list[Many]
) -> None:
    copied = turn("heir", call("heir", 2, "p-0", 10))
    project(connection, lines({"p": alone("p"), "heir": [started("heir"), *copied]}))
    drain(database)
    project(connection, lines({"p": alone("p"), "heir": [forked("heir", "p", None), *copied]}))
    drain(database)
    number = numbers_of(connection)["heir"]
    assert number in found[-1].apart
    assert_equal_to_fold(connection, lines({"p": alone("p"), "heir": [forked("heir", "p", None), *copied]}))
