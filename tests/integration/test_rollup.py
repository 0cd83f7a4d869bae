"""The rollup worker on a real database: its rows equal those of `turnledger fold`, whatever it was given in whatever order, alone or with others."""

from __future__ import annotations

import json
import random
import threading
import urllib.request
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import permutations
from typing import Any

import psycopg
import pytest

from tests.integration.projected import (
    PRICE,
    SLOT,
    TABLES,
    Event,
    assert_equal_to_fold,
    c5,
    call,
    forked,
    lines,
    meanwhile,
    numbered_fork,
    project,
    shown,
    started,
    turn,
    unordered,
    varied,
)
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, produce
from turnledger.pricing import Price
from turnledger.rollup.session import Outcome, roll_up_session
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup, Statements
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    opened = connect(database, "test", autocommit=True)
    load_as_microseconds(opened)
    yield opened
    opened.close()


def drain(database: str) -> int:
    return Rollup(RollupSettings(), database, PRICE).drain()


ALL = lines({**c5(), **numbered_fork(), **varied()}) + lines(c5(), tenant="other")


# --- tests -------------------------------------------------------------------------------------------------------------------------


def test_the_worker_sets_what_fold_prints(database: str, connection: psycopg.Connection[Any]) -> None:
    project(connection, ALL)
    assert drain(database) >= 15
    expected = assert_equal_to_fold(connection, ALL)
    # The comparison has something to compare: every table, an unpriced model, an inherited call, a contribution.
    assert all(expected[table] for table in TABLES)
    assert {row["session_id"] for row in expected["sessions"] if row["inherited_usage"]} == {
        "f",
        "r1",
        "r2",
        "nf",
        "heir",
    }
    assert any(row["unpriced_calls"] for row in expected["sessions"])


def test_c5_the_fleet_sums_65_and_the_fork_its_own_5(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    project(connection, lines(c5()))
    drain(database)
    rows = {row["session_id"]: row for row in shown(connection, "sessions")}
    assert {name: row["input_uncached_tokens"] for name, row in rows.items()} == {
        "p": 60,
        "f": 5,
        "r1": None,
        "r2": None,
    }
    assert rows["f"]["inherited_usage"]["input_uncached"] == 60
    assert rows["r2"]["inherited_usage"]["input_uncached"] == 65
    assert [row["input_uncached_tokens"] for row in shown(connection, "usage_hourly")] == [65]


def test_rollups_that_are_deleted_come_back_the_same(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    project(connection, ALL)
    drain(database)
    before = {table: unordered(shown(connection, table)) for table in (*TABLES, "turns", "findings")}
    for table in (
        "sessions",
        "ai_usage",
        "tool_usage",
        "mcp_usage",
        "usage_hourly",
        "hour_parts",
        "call_overlay",
        "part_overlay",
    ):
        connection.execute(f"delete from {SLOT}.{table}")  # type: ignore[call-overload]
    for table in ("turn_overlay", "call_claims", "call_groups", "rollup_due"):
        connection.execute(f"delete from {SLOT}.{table}")  # type: ignore[call-overload]
    connection.execute("insert into ledger.marks (session_no) select session_no from ledger.sessions")
    drain(database)
    assert {table: unordered(shown(connection, table)) for table in before} == before


@pytest.mark.parametrize("make", [c5, numbered_fork])
def test_sessions_that_share_calls_may_come_in_any_order(
    make: Callable[[], dict[str, list[Event]]], database: str, connection: psycopg.Connection[Any]
) -> None:
    # Each order is a tenant of its own; the first of each comes, then the second of each, and so on.
    sessions = make()
    for step in range(len(sessions)):
        for order in permutations(sessions):
            project(connection, lines({order[step]: sessions[order[step]]}, tenant="-".join(order)))
        drain(database)
    everything = [
        line for order in permutations(sessions) for line in lines(sessions, tenant="-".join(order))
    ]
    assert_equal_to_fold(connection, everything)


def test_a_link_that_comes_late_moves_owners_two_generations_away(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    # c copies a's call; b between them holds nothing, and until its own events arrive nobody knows that c descends from a.
    first = {
        "z": [started("z"), *turn("z", call("z", 9, "m1", 10))],
        "c": [forked("c", "b", None), *turn("c", call("c", 2, "m1", 10))],
    }
    project(connection, lines(first))
    drain(database)
    assert {row["owner_session_id"] for row in shown(connection, "model_calls")} == {
        "c"
    }  # the earlier of two strangers
    late = {"b": [forked("b", "z", None)]}
    project(connection, lines(late))
    drain(database)
    assert {row["owner_session_id"] for row in shown(connection, "model_calls")} == {"z"}
    assert_equal_to_fold(connection, lines({**first, **late}))


def random_family(chance: random.Random) -> dict[str, list[Event]]:
    """Five sessions that fork, resume and inherit at random, in circles too, with few message ids, numbers and figures to share."""
    names = ["a", "b", "c", "d", "e"]
    family: dict[str, list[Event]] = {}
    for name in names:
        other = chance.choice(names)
        first = chance.choice(
            [started(name), forked(name, other, None), forked(name, other, chance.randrange(8))]
        )
        links = {"parent_session_id": chance.choice(names)} if chance.random() < 0.3 else {}
        calls = []
        for seq in range(2, 2 + chance.randrange(5)):
            more: Event = {"turn_id": chance.choice(["t", "u"]), **links}
            if chance.random() < 0.7:
                more["model_call_id"] = chance.choice(["1", "2", "3"])
            if chance.random() < 0.3:
                more["provenance"] = "inherited"
            if chance.random() < 0.1:
                more |= {"kind": "eval", "run_id": "r"}
            message = chance.choice(["m1", "m2", None])
            calls.append(call(name, seq, message, chance.choice([7, 8]), **more))
        family[name] = [first, *calls]
    return family


@pytest.mark.parametrize("seed", range(3))
def test_random_families_that_arrive_bit_by_bit_end_as_fold_says(
    seed: int, database: str, connection: psycopg.Connection[Any]
) -> None:
    # Twenty tenants at once; in each step every tenant's sessions have got a little further, in an order of its own.
    chance = random.Random(seed)
    tenants = {f"{seed}-{number}": random_family(chance) for number in range(20)}
    for share in (0.3, 0.6, 1.0):
        for tenant, family in tenants.items():
            for name in chance.sample(sorted(family), len(family) if share == 1.0 else 3):
                part = family[name][: max(1, round(share * len(family[name])))]
                project(connection, lines({name: part}, tenant=tenant))
        threads = [threading.Thread(target=drain, args=(database,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    expected = assert_equal_to_fold(
        connection, [line for tenant, family in tenants.items() for line in lines(family, tenant=tenant)]
    )
    inherited = [row for row in expected["model_calls"] if row["inherited"]]
    assert len(inherited) > 30
    assert any(row["check"] == "fork_cycle" for row in expected["findings"])


def test_a_call_that_changes_gives_its_copy_back(database: str, connection: psycopg.Connection[Any]) -> None:
    before = {
        "a": [started("a"), *turn("a", call("a", 2, "m1", 10))],
        "b": [started("b"), *turn("b", call("b", 3, "m1", 10))],
    }
    project(connection, lines(before))
    drain(database)
    assert {row["input_uncached_tokens"] for row in shown(connection, "sessions")} == {10, None}
    after = {**before, "a": [started("a"), *turn("a", call("a", 2, "m1", 11))]}
    project(connection, lines({"a": after["a"]}))
    drain(database)
    assert {row["input_uncached_tokens"] for row in shown(connection, "sessions")} == {11, 10}
    assert_equal_to_fold(connection, lines(after))


def test_several_workers_at_once_on_shared_calls_give_one_answer(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    family: dict[str, list[Event]] = {
        "p": [started("p"), *turn("p", *(call("p", n + 2, f"m{n}", n) for n in range(20)))]
    }
    for fork in range(12):
        name = f"f{fork}"
        calls = [call(name, n + 2, f"m{n}", n) for n in range(20)] + [
            call(name, 30, f"own{fork}", 100 + fork)
        ]
        family[name] = [forked(name, f"f{fork - 1}" if fork % 3 else "p", None), *turn(name, *calls)]
    records = lines(family)
    project(connection, records)
    workers = [Rollup(RollupSettings(), database, PRICE) for _ in range(4)]
    threads = [threading.Thread(target=worker.drain) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (
        sum(
            worker.metrics.registry.get_sample_value("turnledger_rollup_sessions_total", {"outcome": "set"})
            or 0
            for worker in workers
        )
        >= 13
    )
    assert_equal_to_fold(connection, records)


def test_a_mark_that_comes_during_a_roll_up_stays(database: str, connection: psycopg.Connection[Any]) -> None:
    project(connection, lines(c5()))
    ((session_no,),) = connection.execute(
        "select session_no from ledger.sessions where session_id = 'p'"
    ).fetchall()
    with connect(database, "other", autocommit=True) as other:
        told: list[int] = []

        def marked() -> None:
            told.append(session_no)
            other.execute("insert into ledger.marks (session_no) values (%s)", (session_no,))

        price = meanwhile(marked)
        assert roll_up_session(Statements(connection, SLOT), session_no, price) is Outcome.SET
    marks = connection.execute(
        "select count(*) from ledger.marks where session_no = %s", (session_no,)
    ).fetchone()
    assert told
    assert marks == (1,)


def test_a_roll_up_that_fails_keeps_its_marks_and_changes_nothing(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    project(connection, lines(c5()))
    marks = connection.execute("select count(*) from ledger.marks").fetchone()
    ((session_no,),) = connection.execute(
        "select session_no from ledger.sessions where session_id = 'p'"
    ).fetchall()

    def price(*given: Any, **named: Any) -> Price:
        raise RuntimeError("the power goes out here")

    with pytest.raises(RuntimeError):
        roll_up_session(Statements(connection, SLOT), session_no, price)
    assert connection.execute("select count(*) from ledger.marks").fetchone() == marks
    assert shown(connection, "sessions") == []
    assert connection.execute(f"select count(*) from {SLOT}.call_claims").fetchone() == (0,)


def test_two_workers_never_have_one_session(database: str, connection: psycopg.Connection[Any]) -> None:
    project(connection, lines({"p": c5()["p"]}))
    ((session_no,),) = connection.execute("select session_no from ledger.sessions").fetchall()
    with connect(database, "other", autocommit=True) as other:
        load_as_microseconds(other)
        seen: list[Outcome] = []
        price = meanwhile(lambda: seen.append(roll_up_session(Statements(other, SLOT), session_no, PRICE)))
        assert roll_up_session(Statements(connection, SLOT), session_no, price) is Outcome.SET
    assert seen == [Outcome.BUSY]


def test_a_session_waits_a_second_before_it_is_rolled_up_again(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    project(connection, lines({"p": c5()["p"]}))
    worker = Rollup(RollupSettings(), database, PRICE)
    assert worker.tick().done == 1
    project(connection, lines({"p": c5()["p"]}))
    assert worker.tick().done == 0
    assert connection.execute("select count(*) from ledger.marks").fetchone() == (1,)
    connection.execute(f"update {SLOT}.rollup_due set due_at = now() - interval '1 ms'")
    assert worker.tick().done == 1
    worker.close()


@pytest.mark.parametrize(
    ("projected", "derived"), [("model_calls", "call_overlay"), ("usage_parts", "part_overlay")]
)
def test_what_stood_in_two_turns_for_a_moment_stands_once_beside_them(
    projected: str, derived: str, database: str, connection: psycopg.Connection[Any]
) -> None:
    # Between two transactions of ingest a call may stand in the turn that it moves to and still in the one that it leaves.
    records = lines(varied())
    project(connection, records)
    copied = f"create temporary table twice as select * from {SLOT}.{projected}"
    connection.execute(copied)  # type: ignore[call-overload]  # names of this test
    connection.execute("update twice set turn_no = null")
    connection.execute(f"insert into {SLOT}.{projected} select * from twice")  # type: ignore[call-overload]
    drain(database)
    twice = (
        f"select count(*) - count(distinct (session_no, {derived.split('_')[0]}_key)) from {SLOT}.{derived}"
    )
    assert connection.execute(twice).fetchone() == (0,)  # type: ignore[call-overload]
    project(connection, records)
    drain(database)
    assert_equal_to_fold(connection, records)


@pytest.mark.parametrize(("derived", "key"), [("call_overlay", "call_key"), ("part_overlay", "part_key")])
def test_a_row_that_stands_twice_is_set_again(
    derived: str, key: str, database: str, connection: psycopg.Connection[Any]
) -> None:
    records = lines(varied())
    project(connection, records)
    drain(database)
    doubled = f"insert into {SLOT}.{derived} select * from {SLOT}.{derived} where {key} is not null"
    connection.execute(doubled)  # type: ignore[call-overload]
    project(connection, records)
    drain(database)
    assert_equal_to_fold(connection, records)


def test_what_cannot_be_set_holds_up_nobody(database: str, connection: psycopg.Connection[Any]) -> None:
    project(connection, lines({"bad": [started("bad")], "p": c5()["p"]}))
    # A conflict makes the worker read the session's events; what the ledger holds here is none.
    connection.execute(
        "insert into ledger.streams (session_no, producer, epoch, stream) select session_no, 'h', 0, 's' from ledger.sessions where session_id = 'bad'"
    )
    connection.execute(
        "insert into ledger.events (batch_no, stream_no, seq, kafka_offset, day, type, raw) "
        "select 1, stream_no, 0, 0, ledger.today(), 'x', 'no json' from ledger.streams"
    )
    digest = sha256(b"").digest()
    connection.execute(
        "insert into ledger.conflicts (session_no, stream_no, seq, kept_sha256, lost_sha256, topic, first_partition, first_offset, "
        "last_partition, last_offset) "
        "select session_no, stream_no, 0, %s, %s, 't', 0, 0, 0, 0 from ledger.streams",
        (digest, digest),
    )  # fmt: skip
    worker = Rollup(RollupSettings(), database, PRICE)
    assert worker.tick().done == 1
    assert [row["session_id"] for row in shown(connection, "sessions")] == ["p"]
    (reason,) = worker.health.reasons()
    assert "cannot be rolled up" in reason
    assert worker.tick().done == 0
    worker.close()


def test_a_session_that_is_projected_no_more_loses_its_rows(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    project(connection, lines(c5()))
    drain(database)
    connection.execute(
        f"delete from {SLOT}.session_facts where session_no = (select session_no from ledger.sessions where session_id = 'f')"
    )
    connection.execute(
        "insert into ledger.marks (session_no) select session_no from ledger.sessions where session_id = 'f'"
    )
    drain(database)
    assert sorted(row["session_id"] for row in shown(connection, "sessions")) == ["p", "r1", "r2"]


def test_an_hour_whose_parts_are_gone_is_gone(database: str, connection: psycopg.Connection[Any]) -> None:
    project(connection, lines({"p": c5()["p"]}))
    drain(database)
    assert len(shown(connection, "usage_hourly")) == 1
    project(connection, lines({"p": [started("p")]}))
    drain(database)
    assert shown(connection, "usage_hourly") == []


def test_a_database_that_is_away_turns_health_red_and_is_waited_for() -> None:
    worker = Rollup(RollupSettings(), "postgresql://nobody@127.0.0.1:1/none", PRICE)
    thread = threading.Thread(target=worker.run)
    thread.start()
    eventually(lambda: worker.health.failing is not None, seconds=10, what="the failure is noticed")
    assert worker.health.failing is not None
    worker.health.failing = (worker.health.failing[0] - 60, worker.health.failing[1])
    (reason,) = worker.health.reasons()
    assert "the database fails for" in reason
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_rollup_once_ends_when_no_mark_is_left(database: str, connection: psycopg.Connection[Any]) -> None:
    project(connection, ALL)
    done = run("rollup", "--once", environment={"TURNLEDGER_DATABASE_URL": database})
    assert done.returncode == 0, done.stderr
    assert_equal_to_fold(connection, ALL)


def test_rollup_goes_on_and_ends_on_sigterm(
    database: str, connection: psycopg.Connection[Any], start: Callable[..., Running]
) -> None:
    worker = start(
        "rollup",
        "--health-port",
        "0",
        "--interval",
        "0.05",
        environment={"TURNLEDGER_DATABASE_URL": database},
    )
    eventually(lambda: "health at" in worker.output(), what="the health server listens")
    address = worker.output().split("health at ")[1].split("/healthz")[0]
    project(connection, lines(c5()))
    eventually(lambda: len(shown(connection, "sessions")) == 4, what="the sessions are rolled up")
    eventually(
        lambda: [row["input_uncached_tokens"] for row in shown(connection, "usage_hourly")] == [65],
        what="the hour is set",
    )
    with urllib.request.urlopen(f"{address}/healthz") as answer:
        assert json.load(answer)["status"] == "green"
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        assert b'turnledger_rollup_sessions_total{outcome="set"}' in answer.read()
    assert worker.stop() == 0


@pytest.mark.partitions(1)
def test_from_the_broker_to_the_sums_both_workers_give_what_fold_prints(
    topic: Topic, database: str, connection: psycopg.Connection[Any], start: Callable[..., Running]
) -> None:
    other = json.dumps({**call("p", 2, "m1", 10), "payload": {"provider": "else"}}).encode()
    refused = b'{"session_id":"p","seq":"two","type":"x"}'
    records = [*ALL, ALL[2], other, refused, b"no json", other]
    environment = topic.environment() | {"TURNLEDGER_DATABASE_URL": database}
    worker = start("worker", "--health-port", "0", environment=environment)
    produce(topic, [Record(line, key=_key(line)) for line in records])
    read = "select coalesce(sum(records), 0) from ledger.ingest_batches"
    eventually(lambda: connection.execute(read).fetchone() == (len(records),), what="all records are read")
    assert worker.stop() == 0
    assert run("rollup", "--once", environment=environment).returncode == 0
    expected = assert_equal_to_fold(connection, records)
    (row,) = [row for row in expected["sessions"] if (row["tenant"], row["session_id"]) == ("default", "p")]
    assert (row["grade"], row["conflicts"], row["dead_letters"]) == ("disputed", 1, 1)
    assert expected["records"] == {
        "read": len(records),
        "accepted": len(ALL),
        "duplicates": 1,
        "conflicts": 2,
        "dead": 2,
    }


def _key(line: bytes) -> bytes:
    try:
        record = json.loads(line)
    except ValueError:
        return b""
    return f"{record.get('tenant', 'default')}/{record['session_id']}".encode()


def test_a_database_without_our_schema_is_a_sentence_and_status_2(empty_database: str) -> None:
    done = run("rollup", "--once", environment={"TURNLEDGER_DATABASE_URL": empty_database})
    assert done.returncode == 2
    assert "run `turnledger db migrate`" in done.stderr
    assert "Traceback" not in done.stderr
