"""A long session is rolled up by the turns that moved, and comes to what reading it whole comes to (design 5)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.projected import (
    PRICE,
    SLOT,
    TABLES,
    Event,
    Projector,
    assert_equal_to_fold,
    call,
    forked,
    lengthen,
    lines,
    plain,
    project,
    shown,
    started,
    turn,
    unordered,
)
from turnledger.fold import columns
from turnledger.rollup import blocks, session
from turnledger.rollup.many import roll_up_many
from turnledger.rollup.rows import Loaded, Statements, load
from turnledger.rollup.session import Outcome, roll_up_session
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds

DERIVED = ("sessions", "ai_usage", "tool_usage", "mcp_usage", "hour_parts", "usage_hourly", "call_overlay", "part_overlay", "turn_overlay",
           "call_claims", "repriced", "rollup_shares", "findings")  # fmt: skip


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    opened = connect(database, "test", autocommit=True)
    load_as_microseconds(opened)
    yield opened
    opened.close()


def drain(database: str) -> None:
    Rollup(RollupSettings(), database, PRICE).drain()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two turns, so that twenty turns have every level."""
    monkeypatch.setattr(blocks, "FAN", 2)
    monkeypatch.setattr(blocks, "LONG", 4)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many turns each load read; None: all."""
    told: list[int | None] = []

    def listening(do: Statements, session_no: int, numbers: Any = None) -> Loaded | None:
        told.append(None if numbers is None else len(numbers))
        return load(do, session_no, numbers)

    monkeypatch.setattr(session, "load", listening)
    return told


def worked(name: str, at: int, chance: random.Random) -> list[Event]:
    """A turn of a session, ten positions from ``at`` on: calls that others may hold too, a tool, sometimes a running total, an unknown model, a copy."""
    turn_id = f"t{at}"
    message = f"m{at}" if chance.random() < 0.7 else None
    numbered = {"model_call_id": chance.choice(["1", "2"])} if chance.random() < 0.5 else {}
    inside = [
        call(name, at + 1, message, chance.choice([7, 8]), **numbered),
        call(name, at + 2, None, 3, payload={"model": chance.choice(["unheard-of", "claude-haiku-4-5"])}),
        plain(name, at + 3, "tool_call.requested", {"tool_name": "bash"}, tool_call_id=f"x{at}"),
        plain(
            name,
            at + 4,
            "tool_call.completed",
            {"status": chance.choice(["ok", "error"])},
            tool_call_id=f"x{at}",
        ),
    ]
    if chance.random() < 0.3:
        total = {
            "provider": "openai",
            "model": "gpt-5.1",
            "counter_kind": "cumulative",
            "usage": {"input": at, "output": at, "cache_read": 0},
        }
        inside.append(plain(name, at + 5, "usage.reported", total))
    if chance.random() < 0.2:
        inside.append(call(name, at + 6, f"copied{at}", 9, provenance="inherited"))
    events = [
        plain(name, at, "turn.started"),
        *inside,
        plain(name, at + 8, "turn.completed", {"status": "completed"}),
    ]
    for event in events:
        event["turn_id"] = turn_id
        event["occurred_at"] = f"2026-05-{1 + at // 300:02d}T{at // 30 % 24:02d}:00:00Z"
    return events


def family(chance: random.Random, turns: int) -> dict[str, list[Event]]:
    """A long session, one that copies some of its turns without a word, and one that was forked from it."""
    long = [started("long"), *(event for n in range(turns) for event in worked("long", 1 + 10 * n, chance))]
    copied = [
        {**event, "session_id": "copy", "provenance": "inherited" if chance.random() < 0.3 else "observed"}
        for event in long[1:]
        if event["turn_id"] in {f"t{1 + 10 * n}" for n in range(0, turns, 3)}
    ]
    fork = [{**event, "session_id": "fork"} for event in long[1 : len(long) // 2]]
    return {
        "long": long,
        "copy": [started("copy"), *copied],
        "fork": [forked("fork", "long", 10 * turns // 3), *fork],
    }


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("seed", "most"), [(0, 32), (1, 32), (2, 4), (3, 4)])
def test_bit_by_bit_late_and_shared_a_long_session_ends_as_fold_says(
    seed: int,
    most: int,
    database: str,
    connection: psycopg.Connection[Any],
    reads: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "MOST", most)
    chance = random.Random(seed)
    events = family(chance, 20)
    late = {name: set(chance.sample(range(len(said)), len(said) // 8)) for name, said in events.items()}
    ingest = Projector(connection)
    steps = 6
    for step in range(1, steps + 1):
        for name in chance.sample(sorted(events), 3 if step == steps else 2):
            upto = len(events[name]) * step // steps
            there = [
                event
                for at, event in enumerate(events[name][: max(1, upto)])
                if step == steps or at not in late[name]
            ]
            ingest.project(lines({name: there}))
        drain(database)
    records = lines(events)
    expected = assert_equal_to_fold(connection, records)
    some = [read for read in reads if read is not None]
    assert len(some) > 5
    assert {row["session_id"] for row in expected["sessions"] if row["inherited_usage"]} >= {"copy", "fork"}
    assert any(row["check"] == "inherited_without_source" for row in expected["findings"])

    before = {table: unordered(shown(connection, table)) for table in (*TABLES, "turns", "findings")}
    shares = _shares(connection)
    for table in DERIVED:
        where = " where source = 'rollup'" if table == "findings" else ""
        connection.execute(f"delete from {SLOT}.{table}{where}")  # type: ignore[call-overload]  # names of this test
    connection.execute("insert into ledger.marks (session_no) select session_no from ledger.sessions")
    drain(database)
    assert {table: unordered(shown(connection, table)) for table in before} == before
    assert _shares(connection) == shares
    assert len(shares) > 20


def _shares(connection: psycopg.Connection[Any]) -> dict[Any, str]:
    found = connection.execute(
        f"select session_no, level, block, share from {SLOT}.rollup_shares where share <> '{{}}'"  # type: ignore[call-overload]
    )
    return {row[:3]: row[3] for row in found}


@pytest.mark.usefixtures("small")
def test_a_session_that_is_read_whole_is_read_in_pieces(
    database: str,
    connection: psycopg.Connection[Any],
    reads: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [event for n in range(20) for event in worked("long", 1 + 10 * n, random.Random(1))]
    records = lines({"long": [started("long"), *events]})
    project(connection, records)
    drain(database)
    shares = _shares(connection)
    assert reads == [None]
    del reads[:]
    monkeypatch.setattr(blocks, "MOST", 3)
    # What is left of turns that are gone goes too.
    listed = ", ".join(name for name, _ in columns.TURN_OVERLAY)
    connection.execute(
        f"insert into {SLOT}.turn_overlay (session_no, turn_no, digest, {listed}) "  # type: ignore[call-overload]  # names of ours
        f"select session_no, 44, digest, {listed} from {SLOT}.turn_overlay where turn_no = 1"
    )
    project(connection, records)
    drain(database)
    # Turns 1 to 44 are of the blocks 0 to 22, of two turns each.
    assert reads == [6] * 7 + [4]
    assert _shares(connection) == shares
    assert_equal_to_fold(connection, records)
    assert connection.execute(f"select max(turn_no) from {SLOT}.turn_overlay").fetchone() == (20,)


@pytest.mark.usefixtures("small")
def test_a_conflict_that_is_found_between_pieces_has_the_session_read_at_once(
    database: str,
    connection: psycopg.Connection[Any],
    reads: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "MOST", 3)
    project(connection, lines({"long": [started("long"), *turn("long", call("long", 2, "long", 7))]}))
    number = lengthen(connection, "long", 20)
    real = session.settle

    def contradicted(do: Statements, loaded: Loaded, changed: set[bytes]) -> Any:
        if len(reads) == 2:
            raise AssertionError("a session with a conflict was decided by some of its turns")
        return real(do, loaded, changed)

    listening = session.load

    def load_of(do: Statements, session_no: int, numbers: Any = None) -> Loaded | None:
        loaded = listening(do, session_no, numbers)
        if len(reads) == 2 and loaded is not None:
            loaded.rows.conflicts = 1
        return loaded

    monkeypatch.setattr(session, "load", load_of)
    monkeypatch.setattr(session, "settle", contradicted)
    assert roll_up_session(Statements(connection, SLOT), number, PRICE) is Outcome.SET
    assert reads == [6, 6, None]
    assert connection.execute(f"select sum(model_call_count) from {SLOT}.sessions").fetchone() == (20,)


@pytest.mark.usefixtures("small")
def test_a_mark_that_names_no_turns_reads_the_whole_session(
    database: str, connection: psycopg.Connection[Any], reads: list[int | None]
) -> None:
    events = family(random.Random(1), 12)
    ingest = Projector(connection)
    ingest.project(lines({"long": events["long"]}))
    drain(database)
    connection.execute(
        "insert into ledger.marks (session_no, turns, slot) select session_no, '{3}', 'projection_a' from ledger.sessions"
    )
    drain(database)
    connection.execute(
        "insert into ledger.marks (session_no, turns) select session_no, '{}' from ledger.sessions"
    )
    drain(database)
    connection.execute("insert into ledger.marks (session_no) select session_no from ledger.sessions")
    drain(database)
    # The numbers of turns are those of one generation.
    connection.execute(
        "insert into ledger.marks (session_no, turns, slot) select session_no, '{3}', 'projection_b' from ledger.sessions"
    )
    drain(database)
    assert reads == [None, 2, 0, None, None]


@pytest.mark.usefixtures("small")
def test_what_every_share_depends_on_makes_them_anew_when_it_moves(
    database: str, connection: psycopg.Connection[Any], reads: list[int | None]
) -> None:
    # The session turns out to be a fork: whose calls it holds is asked of every one of its turns.
    events = family(random.Random(2), 12)
    ingest = Projector(connection)
    ingest.project(lines({"long": events["long"], "fork": events["fork"][1:]}))
    drain(database)
    reads.clear()
    ingest.project(lines({"fork": events["fork"]}))
    drain(database)
    assert None in reads
    assert_equal_to_fold(connection, lines({"long": events["long"], "fork": events["fork"]}))


@pytest.mark.usefixtures("small")
def test_a_conflict_makes_the_session_disputed_and_is_read_whole(
    database: str, connection: psycopg.Connection[Any], reads: list[int | None]
) -> None:
    events = family(random.Random(3), 12)
    ingest = Projector(connection)
    ingest.project(lines({"long": events["long"]}))
    drain(database)
    connection.execute(
        "insert into ledger.streams (session_no, producer, epoch, stream) select session_no, 'h', 0, 's' from ledger.sessions"
    )
    connection.execute(
        "insert into ledger.conflicts (session_no, stream_no, seq, kept_sha256, lost_sha256, topic, first_partition, first_offset, "
        "last_partition, last_offset) select session_no, stream_no, 0, sha256(''), sha256(''), 't', 0, 0, 0, 0 from ledger.streams limit 1"
    )
    reads.clear()
    connection.execute(
        "insert into ledger.marks (session_no, turns) select session_no, '{}' from ledger.sessions"
    )
    drain(database)
    assert reads == [0, None]
    (row,) = shown(connection, "sessions")
    assert (row["grade"], row["conflicts"]) == ("disputed", 1)


def test_the_cost_of_a_moved_turn_does_not_grow_with_the_sessions_age(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    do = Statements(connection, SLOT)
    numbers: dict[int, int] = {}
    whole: dict[int, float] = {}
    moved: dict[int, list[float]] = {250: [], 2500: []}
    for turns in moved:
        name = f"s{turns}"
        project(connection, lines({name: [started(name), *turn(name, call(name, 2, name, 7))]}))
        numbers[turns] = lengthen(connection, name, turns)
        connection.execute(f"analyze {SLOT}.model_calls")  # type: ignore[call-overload]
        began = time.perf_counter()
        assert roll_up_session(do, numbers[turns], PRICE) is Outcome.SET
        whole[turns] = time.perf_counter() - began
    for tokens in range(100, 108):
        for turns, session_no in numbers.items():  # in turn: what else the machine does meets both
            # The last turn says something else each time.
            connection.execute(
                f"update {SLOT}.model_calls set output_tokens = %s where session_no = %s and turn_no = %s",  # type: ignore[call-overload]
                (tokens, session_no, turns),
            )
            connection.execute(
                "insert into ledger.marks (session_no, turns, slot) values (%s, %s, %s)",
                (session_no, [turns], SLOT),
            )
            began = time.perf_counter()
            assert roll_up_session(do, session_no, PRICE, now=True) is Outcome.SET
            moved[turns].append(time.perf_counter() - began)
    for turns in moved:
        (row,) = [one for one in shown(connection, "sessions") if one["session_id"] == f"s{turns}"]
        assert row["output_tokens"] == 5 * (turns - 1) + 107
    took = {turns: min(times) for turns, times in moved.items()}
    # Ten times the turns; read whole it is about ten times the work, by the turn that moved about the same.
    assert took[2500] < 3 * took[250]
    assert whole[2500] > 3 * took[2500]


@pytest.mark.parametrize("together", [False, True])
def test_a_moved_turn_reads_its_own_rows_where_most_sessions_are_short(
    together: bool, database: str, connection: psycopg.Connection[Any]
) -> None:
    """The planner takes a session for the mean of all: it must not read what the long one has of calls, as it would of a short one."""
    do, turns = Statements(connection, SLOT), 2500
    project(connection, lines({"long": [started("long"), *turn("long", call("long", 2, "long", 7))]}))
    number = lengthen(connection, "long", turns)
    assert roll_up_session(do, number, PRICE) is Outcome.SET
    others = {"session_no": "1000000 + n", "identity": "decode(md5(n::text), 'hex')"}
    for table in ("call_overlay", "call_claims"):
        described = connection.execute(f"select * from {SLOT}.{table} limit 0").description or []  # type: ignore[call-overload]
        listed = ", ".join(others.get(column.name, f"t.{column.name}") for column in described)
        connection.execute(
            f"insert into {SLOT}.{table} select {listed} from (select * from {SLOT}.{table} where session_no = %s limit 1) t, generate_series(1, 5000) n",  # type: ignore[call-overload]
            (number,),
        )
        connection.execute(f"analyze {SLOT}.{table}")  # type: ignore[call-overload]
    # As a statement is planned that was asked often: for any session.
    connection.prepare_threshold = 0
    connection.execute("set plan_cache_mode = force_generic_plan")
    read: list[int] = []
    for tokens in range(100, 103):
        before = _rows_read(connection)
        connection.execute(
            f"update {SLOT}.model_calls set output_tokens = %s where session_no = %s and turn_no = %s",  # type: ignore[call-overload]
            (tokens, number, turns),
        )
        connection.execute(
            "insert into ledger.marks (session_no, turns, slot) values (%s, %s, %s)", (number, [turns], SLOT)
        )
        if together:
            assert roll_up_many(do, [number], PRICE, now=True).done == [number]
        else:
            assert roll_up_session(do, number, PRICE, now=True) is Outcome.SET
        read.append(_rows_read(connection) - before)
    assert 16 < max(read) < turns / 4, read


def _rows_read(connection: psycopg.Connection[Any]) -> int:
    """Rows that statements of this connection have read of calls' overlays and claims."""
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_clear_snapshot()")
    ((count,),) = connection.execute(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int8 from pg_stat_user_tables "
        "where schemaname = %s and relname in ('call_overlay', 'call_claims')",
        (SLOT,),
    ).fetchall()
    return int(count)
