"""The rollup worker on a real database: its rows equal those of `turnledger fold`, whatever it was given in whatever order, alone or with others."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import permutations
from typing import Any

import psycopg
import pytest

from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, produce
from turnledger.contract.times import utc_text
from turnledger.fold.dedupe import dedupe
from turnledger.fold.document import contribution_row, document
from turnledger.fold.findings import grouped
from turnledger.fold.model import Row, SessionFold
from turnledger.fold.session import fold_session
from turnledger.pricing import Price, packaged, price_call
from turnledger.rollup.session import Outcome, roll_up_session
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup, Statements
from turnledger.store import write
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds

PRICE = partial(price_call, packaged())
SLOT = "projection_a"
Event = dict[str, Any]


# --- events -----------------------------------------------------------------------------------------------------------------------


def call(session: str, seq: int, message: str | None, tokens: int, **more: Any) -> Event:
    """One finished model call of turn ``t``; ``tokens`` in, 5 out."""
    usage = more.pop("usage", {"input": tokens, "output": 5, "cache_read": 0})
    payload = {
        "provider": "anthropic",
        "model": "claude-opus-4-5",
        "stop_reason": "end_turn",
        "latency_ms": 40,
        "usage": usage,
        **more.pop("payload", {}),
    }
    if message is not None:
        payload["message_id"] = message
    return {
        "session_id": session,
        "seq": seq,
        "type": "model_call.completed",
        "turn_id": "t",
        "occurred_at": f"2026-05-01T10:{seq:02d}:00Z",
        "payload": payload,
        **more,
    }


def plain(session: str, seq: int, kind: str, payload: Event | None = None, **more: Any) -> Event:
    return {
        "session_id": session,
        "seq": seq,
        "type": kind,
        "turn_id": "t",
        "occurred_at": f"2026-05-01T10:{seq:02d}:00Z",
        "payload": payload or {},
        **more,
    }


def started(session: str, **payload: Any) -> Event:
    return {
        "session_id": session,
        "seq": 0,
        "type": "session.started",
        "occurred_at": "2026-05-01T10:00:00Z",
        "payload": payload,
    }


def turn(session: str, *inside: Event) -> list[Event]:
    last = max(event["seq"] for event in inside) + 1
    return [
        plain(session, 1, "turn.started", {"input_preview": "go"}),
        *inside,
        plain(session, last, "turn.completed", {"status": "completed"}),
    ]


def forked(session: str, parent: str, at_seq: int | None) -> Event:
    payload: Event = {"parent_session_id": parent}
    if at_seq is not None:
        payload["at_seq"] = at_seq
    return {
        "session_id": session,
        "seq": 0,
        "type": "session.forked",
        "occurred_at": "2026-05-01T12:00:00Z",
        "payload": payload,
    }


def c5() -> dict[str, list[Event]]:
    """Parent calls 10, 20, 30; a fork copies them and adds 5; resumed twice (contract 16)."""
    copied = [(2, "m1", 10), (3, "m2", 20), (4, "m3", 30)]
    own = (5, "m4", 5)
    sessions = {"p": [started("p"), *turn("p", *(call("p", *one) for one in copied))]}
    for name, parent in (("f", "p"), ("r1", "f"), ("r2", "r1")):
        sessions[name] = [
            forked(name, parent, None),
            *turn(name, *(call(name, *one) for one in (*copied, own))),
        ]
    return sessions


def numbered_fork() -> dict[str, list[Event]]:
    """A fork that holds its parent's calls by their numbers alone, up to position 3; a sub-agent that counts from 1 too."""
    parent = [
        call("np", 2, None, 7, model_call_id="1"),
        call("np", 3, None, 8, model_call_id="2"),
        call("np", 4, None, 9, model_call_id="3"),
    ]
    copy = [
        call("nf", 2, None, 7, model_call_id="1"),
        call("nf", 3, None, 8, model_call_id="2"),
        call("nf", 4, None, 90, model_call_id="3"),
    ]
    sub = [call("sub", 2, None, 70, model_call_id="1", parent_session_id="np")]
    inherited = [call("heir", 2, None, 9, model_call_id="3", parent_session_id="np", provenance="inherited")]
    return {
        "np": [started("np"), *turn("np", *parent)],
        "nf": [forked("nf", "np", 3), *turn("nf", *copy)],
        "sub": [started("sub"), *turn("sub", *sub)],
        "heir": [started("heir"), *turn("heir", *inherited)],
    }


def varied() -> dict[str, list[Event]]:
    """Tools, MCP, failures, an unknown model, a running total, eval turns, decisions, something outside turns, another tenant."""
    tools = [
        plain(
            "v",
            2,
            "tool_call.requested",
            {"tool_name": "bash", "call_tool_origin": "native"},
            tool_call_id="a",
        ),
        plain(
            "v",
            3,
            "tool_call.completed",
            {"status": "ok", "duration_ms": 7, "bytes_sent": 3},
            tool_call_id="a",
        ),
        plain(
            "v",
            4,
            "tool_call.requested",
            {"tool_name": "srv__x", "call_tool_origin": "mcp", "server_name": "srv"},
            tool_call_id="b",
        ),
        plain("v", 5, "tool_call.completed", {"status": "error", "bytes_received": 9}, tool_call_id="b"),
        plain("v", 6, "tool_call.requested", {"tool_name": "rm"}, tool_call_id="c"),
        plain("v", 7, "tool_call.denied", {"by": "policy"}, tool_call_id="c"),
        plain(
            "v",
            8,
            "model_call.failed",
            {"provider": "anthropic", "error_class": "rate_limit"},
            model_call_id="x",
        ),
        call("v", 9, "n1", 500, payload={"model": "unheard-of"}),
        call(
            "v", 10, "n2", 1000, usage={"input": 1000, "output": 50, "cache_read": 200, "cache_write_1h": 10}
        ),
        plain("v", 11, "net.requested", {"domain": "example.org", "port": 443, "decision": "denied"}),
    ]
    total = {"input": 60, "output": 6, "cache_read": 20, "total": 66}
    thread = [
        plain(
            "w",
            2,
            "usage.reported",
            {
                "provider": "openai",
                "model": "gpt-5.1",
                "counter_kind": "cumulative",
                "usage": total,
                "start_known": True,
            },
        ),
    ]
    evaluated = [{**event, "kind": "eval", "run_id": "r"} for event in turn("v2", call("v2", 2, "e1", 77))]
    return {
        "v": [started("v", name="varied", agent="a"), *turn("v", *tools)],
        "w": [started("w"), *turn("w", *thread)],
        "v2": [started("v2"), *evaluated, {**call("v2", 20, "l1", 5), "turn_id": None}],
    }  # fmt: skip


def lines(sessions: dict[str, list[Event]], *, tenant: str | None = None) -> list[bytes]:
    added = {} if tenant is None else {"tenant": tenant}
    return [json.dumps({**event, **added}).encode() for events in sessions.values() for event in events]


# --- the projections, as ingest leaves them ----------------------------------------------------------------------------------------


def project(connection: psycopg.Connection[Any], records: Sequence[bytes]) -> None:
    """Write the fold of these records as the ingest worker would, and mark the sessions. What was projected of them before is replaced."""
    with connection.transaction():
        for (tenant, session_id), events in dedupe(enumerate(records, 1)).sessions.items():
            session_no = _session_no(connection, tenant, session_id)
            _put(connection, session_no, fold_session(tenant, session_id, events))
            connection.execute("insert into ledger.marks (session_no) values (%s)", (session_no,))


def _session_no(connection: psycopg.Connection[Any], tenant: str, session_id: str) -> int:
    known = connection.execute(
        "select session_no from ledger.sessions where tenant = %s and session_id = %s", (tenant, session_id)
    ).fetchone()
    if known is None:
        known = connection.execute(
            "insert into ledger.sessions (tenant, session_id, home_topic, home_partition) values (%s, %s, 'x', 0) returning session_no",
            (tenant, session_id),
        ).fetchone()
    assert known is not None
    return int(known[0])


def _put(connection: psycopg.Connection[Any], session_no: int, fold: SessionFold) -> None:
    rows: dict[str, list[bytes]] = {table: [] for table in write.PROJECTED}
    rows["session_facts"].append(write.FACTS.encode(session_no, fold.facts))
    places = [(number, one) for number, one in enumerate(fold.turns, 1)]
    for turn_no, one in places:
        rows["turns"].append(write.TURNS.encode(session_no, turn_no, 1, one.digest, one.flat))
        rows["turn_records"].append(
            write.TURN_RECORDS.encode(session_no, turn_no, 1, one.digest, one.body, {})
        )
    groups: list[tuple[int | None, Any]] = [*places, (None, fold)]
    for turn_no, held in groups:
        rows["model_calls"] += [write.MODEL_CALLS.encode(session_no, turn_no, row) for row in held.calls]
        rows["tool_calls"] += [write.TOOL_CALLS.encode(session_no, turn_no, row) for row in held.tools]
        rows["usage_parts"] += [
            write.USAGE_PARTS.encode(session_no, turn_no, contribution_row(part))
            for part in held.parts
            if part.call_key is None
        ]
        found = grouped(fold.tenant, fold.session_id, held.findings)
        rows["findings"] += [write.FINDINGS.encode(session_no, turn_no, "fold", row) for row in found]
    for table, encoded in rows.items():
        connection.execute(f"delete from {SLOT}.{table} where session_no = %s", (session_no,))
        write.copy(connection, f"{SLOT}.{table}", write.PROJECTED[table].names, encoded)
    for gap in fold.gaps:
        stream = connection.execute(
            "insert into ledger.streams (session_no, producer, epoch, stream) values (%s, %s, %s, %s) "
            "on conflict (session_no, producer, epoch, stream) do update set stream = excluded.stream returning stream_no",
            (session_no, gap["producer"], gap["epoch"], gap["stream"]),
        ).fetchone()
        assert stream is not None
        connection.execute("delete from ledger.gaps where stream_no = %s", stream)
        connection.execute(
            "insert into ledger.gaps (stream_no, from_seq, to_seq, state, missing) values (%s, %s, %s, %s, %s)",
            (*stream, gap["from_seq"], gap["to_seq"], gap["state"], gap["to_seq"] - gap["from_seq"] + 1),
        )


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    opened = connect(database, "test", autocommit=True)
    load_as_microseconds(opened)
    yield opened
    opened.close()


def drain(database: str) -> int:
    return Rollup(RollupSettings(), database, PRICE).drain()


# --- what is compared --------------------------------------------------------------------------------------------------------------

TABLES = ("sessions", "ai_usage", "tool_usage", "mcp_usage", "usage_hourly", "model_calls")


def shown(connection: psycopg.Connection[Any], table: str) -> list[Row]:
    """The rows of a view in the form of ``--json``."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(f"select * from turnledger.{table}")  # type: ignore[call-overload]  # a name of TABLES
        described = cursor.description or []
        return [
            {
                column.name: utc_text(value)
                if column.type_display == "timestamptz" and value is not None
                else value
                for column, value in zip(described, row, strict=True)
            }
            for row in cursor
        ]


def unordered(rows: Sequence[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def assert_equal_to_fold(connection: psycopg.Connection[Any], records: Sequence[bytes]) -> dict[str, Any]:
    expected = document(records, PRICE)
    for table in TABLES:
        assert unordered(shown(connection, table)) == unordered(expected[table]), table
    records_of = {
        (row["tenant"], row["session_id"], row["turn_key"]): row["record"]
        for row in shown(connection, "turns")
    }
    assert len(records_of) == len(expected["turns"])
    for one in expected["turns"]:
        assert records_of[one["tenant"], one["session_id"], one["turn_key"]] == one
    ours = ("unpriced_model", "fork_cycle", "inherited_without_source")
    found = [row for row in shown(connection, "findings") if row["check"] in ours]
    assert unordered(found) == unordered([row for row in expected["findings"] if row["check"] in ours])
    assert connection.execute("select count(*) from ledger.marks").fetchone() == (0,)
    return expected


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

        def price(*given: Any, **named: Any) -> Price:
            if not told:
                told.append(session_no)
                other.execute("insert into ledger.marks (session_no) values (%s)", (session_no,))
            return PRICE(*given, **named)

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

        def price(*given: Any, **named: Any) -> Price:
            if not seen:
                seen.append(roll_up_session(Statements(other, SLOT), session_no, PRICE))
            return PRICE(*given, **named)

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
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 10


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
