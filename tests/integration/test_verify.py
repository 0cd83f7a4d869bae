"""`turnledger verify`: green on what the workers wrote, and every kind of damage is named with its invariant and its row."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from tests.stack import databases, servers
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, create_topic, produce, run_apart
from turnledger.doctor import long as long_sessions
from turnledger.doctor import refold, resum
from turnledger.doctor import verify as verifying
from turnledger.doctor.faults import Report
from turnledger.doctor.naming import NoSuchSession
from turnledger.doctor.reread import reread
from turnledger.doctor.scope import Scope, one_session, what_came_since
from turnledger.doctor.verify import verify_on
from turnledger.fold import state
from turnledger.pricing import packaged, price_call
from turnledger.rollup import blocks
from turnledger.rollup.rows import Statements
from turnledger.rollup.session import set_rows
from turnledger.store.instants import load_as_microseconds

PRICE = partial(price_call, packaged())


def event(session: str, seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    second = f"2026-03-01T10:00:{seq % 60:02d}Z"
    return {"session_id": session, "seq": seq, "type": kind, "occurred_at": second, **fields}


def exchange(session: str, first: int, turn: str, message: str) -> list[dict[str, Any]]:
    """One turn: a call with usage, a tool, an answer."""
    call = {"model_call_id": f"call-{message}"}
    usage = {"input": 100, "output": 20, "cache_read": 50}
    done = {
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "message_id": message,
        "usage": usage,
        "stop_reason": "tool_use",
    }
    return [
        event(session, first, "turn.started", turn_id=turn, payload={"input_preview": "hello"}),
        event(session, first + 1, "model_call.started", turn_id=turn, **call, payload={"provider": "anthropic"}),
        event(session, first + 2, "model_call.completed", turn_id=turn, **call, payload=done),
        event(session, first + 3, "tool_call.requested", turn_id=turn, **call, tool_call_id="t1", payload={"tool_name": "bash"}),
        event(session, first + 4, "tool_call.completed", turn_id=turn, tool_call_id="t1", payload={"status": "ok", "duration_ms": 5}),
        event(session, first + 5, "turn.completed", turn_id=turn, payload={"status": "completed", "duration_ms": 900}),
    ]  # fmt: skip


def waves() -> list[list[Record]]:
    """Four sessions: a whole one; its fork, which holds the same call; one with a gap, a conflict and a duplicate; one without numbers.

    Applied one after the other, so that partition 0 has three batches.
    """
    whole = [
        event("whole", 0, "session.started", payload={"agent": "a"}),
        *exchange("whole", 1, "t-1", "m-1"),
    ]
    whole.append(
        event(
            "whole",
            7,
            "net.requested",
            turn_id="t-1",
            payload={"domain": "a.example", "port": 443, "decision": "allowed"},
            seal="unknown field",
        )
    )
    fork = [
        event("fork", 0, "session.forked", payload={"parent_session_id": "whole", "at_seq": 7}),
        *exchange("fork", 1, "t-1", "m-1"),
        *exchange("fork", 7, "t-2", "m-2"),
    ]
    holed = [one for one in exchange("holed", 0, "t-1", "m-3") if one["seq"] != 1]
    again = [holed[0], {**holed[0], "payload": {"input_preview": "other"}}]
    unnumbered = [
        {**event("unnumbered", n, "net.requested", payload={"domain": "b.example", "decision": "denied"}), "seq": None, "receipt_key": f"r{n}"}
        for n in range(3)
    ]  # fmt: skip
    bad = Record(b'{"session_id":"whole","type":"x","seq":"1"}', key=b"default/whole", partition=0)
    return [
        [*_sent(whole, 0), *_sent(holed, 1)],
        [*_sent(fork, 0), *_sent(again, 1)],
        [bad, *_sent(unnumbered, 1)],
    ]


def _sent(events: list[dict[str, Any]], partition: int) -> list[Record]:
    return [
        Record(json.dumps(one).encode(), f"default/{one['session_id']}".encode(), partition) for one in events
    ]


RECORDS = 32
BATCHES_OF_PARTITION_0 = [(0, 8), (8, 21), (21, 22)]


@dataclass(frozen=True)
class Written:
    """A database that the workers wrote and left, nothing on its way, and the topic that they read."""

    url: str
    topic: Topic

    def environment(self) -> dict[str, str]:
        return self.topic.environment() | {"TURNLEDGER_DATABASE_URL": self.url}


@pytest.fixture(scope="module")
def left(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Written]:
    there = Written(
        databases.create(stack.database_url, template=database_template),
        create_topic(stack.kafka_bootstrap, 2),
    )
    folder = tmp_path_factory.mktemp("verify")
    running = [
        Running(("worker", "--health-port", "0"), there.environment(), folder / "worker.log"),
        Running(("rollup", "--health-port", "0"), there.environment(), folder / "rollup.log"),
    ]
    sent = 0
    try:
        for wave in waves():
            sent += len(produce(there.topic, wave))
            eventually(partial(_applied, there.url, sent, running), what="a wave is applied", seconds=90)
        eventually(partial(_settled, there.url), what="the workers have written everything", seconds=90)
    finally:
        for one in running:
            one.stop()
    assert sent == RECORDS
    with psycopg.connect(there.url) as link:
        found = link.execute(
            "select from_offset, to_offset from ledger.ingest_batches where partition = 0 order by 1"
        ).fetchall()
    assert found == BATCHES_OF_PARTITION_0
    yield there
    databases.drop(stack.database_url, there.url)


def _applied(url: str, records: int, running: list[Running]) -> bool:
    assert all(one.running() for one in running), [one.output() for one in running]
    with psycopg.connect(url) as link:
        row = link.execute("select coalesce(sum(next_offset), 0) from ledger.ingest_progress").fetchone()
    return row == (records,)


def _settled(url: str) -> bool:
    with psycopg.connect(url) as link:
        row = link.execute(
            "select not exists (select from ledger.marks), not exists (select from projection_a.hour_marks),"
            " bool_and(flushed_batch >= (select max(batch_no) from ledger.ingest_batches b"
            " where b.topic = p.topic and b.partition = p.partition)) from ledger.ingest_progress p"
        ).fetchone()
    return row is not None and all(row)


@pytest.fixture(scope="module")
def written(left: Written) -> str:
    return left.url


@pytest.fixture(params=["whole", "in pieces"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a session is proven: held as a whole, or as a long one, of which two events and next to no rows are held at once."""
    if request.param == "in pieces":
        in_pieces(monkeypatch)
    return str(request.param)


def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_sessions, "LONG_EVENTS", 0)
    monkeypatch.setattr(long_sessions, "ROWS", 1)
    monkeypatch.setattr(long_sessions, "LARGE", 1)
    monkeypatch.setattr(long_sessions, "AHEAD", 1)
    monkeypatch.setattr("turnledger.store.read.PIECE_EVENTS", 2)
    monkeypatch.setattr(state, "CLOSED_BUDGET", 0)


@pytest.fixture
def damaged(written: str, way: str) -> Iterator[Callable[..., Report]]:
    """``damaged("update …")``: the report on a database to which that was done; it is taken back before the next."""
    with psycopg.connect(written) as link:

        def judge(
            *statements: str, scope: Callable[[psycopg.Connection[Any]], Scope] | None = None
        ) -> Report:
            link.rollback()
            for statement in statements:
                assert link.execute(statement).rowcount != 0, statement  # type: ignore[arg-type]
            return verify_on(link, PRICE, scope(link) if scope is not None else None, settle_seconds=0.0)

        yield judge
        link.rollback()


@pytest.fixture
def reread_after(left: Written) -> Iterator[Callable[..., Report]]:
    """``reread_after("update …")``: what Kafka, read again, says of a database to which that was done."""
    with psycopg.connect(left.url) as link:
        load_as_microseconds(link)

        def judge(*statements: str, scope: Scope | None = None) -> Report:
            link.rollback()
            for statement in statements:
                assert link.execute(statement).rowcount != 0, statement  # type: ignore[arg-type]
            report = Report()
            reread(link, left.topic.bootstrap, report, scope or Scope(), record_limit=1 << 20)
            return report

        yield judge
        link.rollback()


def broken(report: Report) -> dict[str, set[str]]:
    """What is wrong, by invariant."""
    return {name: {fault.what for fault in faults} for name, faults in report.faults.items() if faults}


def only(report: Report, invariant: str) -> dict[str, Any]:
    """The first fault of the one invariant that is broken, as a row with its sentence."""
    assert {name: count for name, count in report.counts.items() if count} == {
        invariant: report.counts[invariant]
    }, report.faults
    fault = report.faults[invariant][0]
    return {"what": fault.what, **fault.row}


def test_all_invariants_hold_on_what_the_workers_wrote(written: str) -> None:
    done = run("verify", environment={"TURNLEDGER_DATABASE_URL": written})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "verify: all invariants hold"
    assert "4 sessions, 4 turns, 29 events" in done.stdout


def test_the_json_is_one_object(written: str) -> None:
    done = run("verify", "--json", environment={"TURNLEDGER_DATABASE_URL": written})
    found = json.loads(done.stdout)
    assert (found["holds"], found["sessions"], found["events"], found["unsettled"]) == (True, 4, 29, [])
    assert [one["id"] for one in found["invariants"]] == ["I1", "I2", "I3", "I4", "I5", "I7"]


def test_a_lost_event_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "delete from ledger.events e using ledger.streams st, ledger.sessions s"
        " where st.stream_no = e.stream_no and s.session_no = st.session_no and s.session_id = 'whole' and e.seq = 4"
    )
    whats = {fault.what for fault in report.faults["I1"]}
    assert "a number counts as seen whose event is not in the ledger" in whats
    assert "a batch's accepted events are not those in the ledger" in whats
    assert any(
        fault.row.get("session_id") == "whole" and fault.row.get("seq") == 4 for fault in report.faults["I1"]
    )


def test_an_event_of_another_day_twice_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "insert into ledger.events (day, batch_no, stream_no, seq, kafka_offset, type, occurred_at, raw)"
        " select e.day + 1, e.batch_no, e.stream_no, e.seq, e.kafka_offset, e.type, e.occurred_at, e.raw from ledger.events e"
        " join ledger.streams st using (stream_no) join ledger.sessions s using (session_no) where s.session_id = 'holed' and e.seq = 2"
    )
    (twice,) = [fault for fault in report.faults["I1"] if fault.what == "an event is in the ledger twice"]
    assert (twice.row["session_id"], twice.row["seq"], len(twice.row["days"])) == ("holed", 2, 2)
    assert broken(report) == {
        "I1": {"an event is in the ledger twice", "a batch's accepted events are not those in the ledger"}
    }


def test_bytes_that_were_changed_are_named(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "update ledger.events set raw = convert_to(replace(convert_from(raw, 'UTF8'), '\"output\": 20', '\"output\": 21'), 'UTF8')"
        " where type = 'model_call.completed' and convert_from(raw, 'UTF8') like '%m-3%'"
    )
    row = report.faults["I4"][0].row
    assert (row["session_id"], row["table"]) == ("holed", "turns")
    assert report.counts["I5"] > 0


def test_an_event_at_another_position_than_its_bytes_say_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "update ledger.events set raw = convert_to(replace(convert_from(raw, 'UTF8'), '\"seq\": 7', '\"seq\": 9'), 'UTF8')"
        " where type = 'net.requested' and convert_from(raw, 'UTF8') like '%a.example%'"
    )
    found = [
        fault
        for fault in report.faults["I1"]
        if fault.what == "an event stands at a position that its bytes do not name"
    ]
    assert [fault.row["seq"] for fault in found] == [7]


def test_a_receipt_that_is_gone_is_named(damaged: Callable[..., Report]) -> None:
    row = only(damaged("delete from ledger.receipts where ordinal = 1"), "I1")
    assert (row["what"], row["session_id"], row["receipt_key"]) == (
        "a receipt and the event that it stands for do not agree",
        "unnumbered",
        "r1",
    )


def test_a_dead_letter_that_is_gone_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged("delete from ledger.dead_letters")
    assert [fault.what for fault in report.faults["I1"]] == [
        "a batch's dead letters are not those in the ledger"
    ]
    assert report.faults["I5"][0].row["column"] == "dead_letters"


def test_a_conflict_that_is_gone_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged("delete from ledger.conflicts")
    assert report.faults["I1"][0].what == "the conflicts that batches counted are not those in the receipts"
    assert report.faults["I1"][0].row["counted"] == 1


def test_a_batch_that_does_not_add_up_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "alter table ledger.ingest_batches drop constraint ingest_batches_check",
        "update ledger.ingest_batches set duplicates = duplicates + 1 where batch_no = (select min(batch_no) from ledger.ingest_batches)",
    )
    assert only(report, "I2")["what"] == "a batch does not add up"


def test_a_broken_chain_is_named(damaged: Callable[..., Report]) -> None:
    row = only(
        damaged("update ledger.ingest_progress set first_offset = first_offset - 1 where partition = 0"), "I2"
    )
    assert (row["what"], row["partition"]) == ("a partition's batches do not span its offsets", 0)


def test_an_epoch_that_nobody_claimed_is_named(damaged: Callable[..., Report]) -> None:
    row = only(damaged("update ledger.ingest_batches set epoch = 99 where partition = 1"), "I3")
    assert (row["what"], row["greatest_epoch"]) == ("a partition's progress does not cover its batches", 99)


def test_a_record_that_is_not_its_fold_is_named(damaged: Callable[..., Report]) -> None:
    row = only(
        damaged(
            "update projection_a.turn_records set record = record || ' ' where session_no = (select session_no from ledger.sessions where session_id = 'holed')"
        ),
        "I4",
    )
    assert (row["what"], row["column"]) == ("turn_records.record is not what it should be", "record")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (
            "update projection_a.turns set status = 'failed' where turn_key = 't-2'",
            "turns.status is not what it should be",
        ),
        ("delete from projection_a.tool_calls where turn_key = 't-2'", "tool_calls lacks a row"),
        (
            "update projection_a.model_calls set turn_no = null where message_id = 'm-2'",
            "model_calls.turn_no is not what it should be",
        ),
        (
            "insert into projection_a.net_events select * from projection_a.net_events where domain = 'a.example'",
            "net_events has two rows of one key",
        ),
        (
            "update projection_a.session_facts set message_count = message_count + 1",
            "session_facts.message_count is not what it should be",
        ),
        (
            "update projection_a.turn_records set revision = 7",
            "a turn and its record are not of one revision",
        ),
    ],
)
def test_a_row_that_is_not_its_fold_is_named(damaged: Callable[..., Report], damage: str, what: str) -> None:
    assert what in {fault.what for fault in damaged(damage).faults["I4"]}


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (
            "update projection_a.sessions set output_tokens = output_tokens + 1",
            "sessions.output_tokens is not what it should be",
        ),
        (
            "update projection_a.sessions set cost_micro_usd = cost_micro_usd + 1",
            "sessions.cost_micro_usd is not what it should be",
        ),
        ("delete from projection_a.ai_usage", "ai_usage lacks a row"),
        (
            "update projection_a.call_overlay set owner_session_id = 'fork', inherited = false",
            "call_overlay.inherited is not what it should be",
        ),
        (
            "update projection_a.turn_overlay set digest = 'x' where turn_key = 't-2'",
            "turn_overlay.digest is not what it should be",
        ),
        (
            "update projection_a.usage_hourly set cost_micro_usd = cost_micro_usd + 1",
            "usage_hourly is not the sum of its parts (stored)",
        ),
        (
            "insert into projection_a.tool_usage (session_no, tool_name) select session_no, 'no such tool' from ledger.sessions",
            "tool_usage has a row that should not be",
        ),
        (
            "insert into projection_a.repriced (session_no, call_key, run_no) select session_no, call_key, 1 from projection_a.call_overlay",
            "repriced has a row that should not be",
        ),
    ],
)
def test_a_rollup_that_is_not_its_recomputation_is_named(
    damaged: Callable[..., Report], damage: str, what: str
) -> None:
    report = damaged(damage)
    assert what in {fault.what for fault in report.faults["I5"]}
    assert {name for name, count in report.counts.items() if count} == {"I5"}


SESSION = "(select session_no from ledger.sessions where session_id = '{}')"
STREAM = (
    "(select stream_no from ledger.streams join ledger.sessions using (session_no) where session_id = '{}')"
)


@pytest.mark.parametrize(
    ("damage", "invariant", "what", "named"),
    [
        (
            f"update ledger.streams set low = low - 1 where stream_no = {STREAM.format('whole')}",
            "I1",
            "a stream's low is not the least number that it has not seen",
            {"session_id": "whole", "stream": "ledger", "low": 7, "least_missing": 8},
        ),
        (
            f"update ledger.streams set low = 2 where stream_no = {STREAM.format('holed')}",
            "I1",
            "a stream's low is not the least number that it has not seen",
            {"session_id": "holed", "low": 2, "least_missing": 1},
        ),
        (
            f"update ledger.streams set holes = 2 where stream_no = {STREAM.format('holed')}",
            "I1",
            "a stream's count of holes is not that of its chunks",
            {"session_id": "holed", "holes": 2, "missing": 1},
        ),
        (
            f"update ledger.streams set hi = hi + 1, low = low + 1 where stream_no = {STREAM.format('whole')}",
            "I1",
            "a number counts as seen whose event is not in the ledger",
            {"session_id": "whole", "seq": 8, "seen": 9, "events": 8},
        ),
        (
            f"update ledger.streams set receipts = 4 where stream_no = {STREAM.format('unnumbered')}",
            "I1",
            "a stream's count of receipts is not that of its receipts",
            {"session_id": "unnumbered", "receipts": 4, "known": 3},
        ),
        (
            f"delete from ledger.stream_days where stream_no = {STREAM.format('whole')}",
            "I1",
            "a number's day is not written down",
            {"session_id": "whole", "stream": "ledger"},
        ),
        (
            f"update ledger.events set type = 'note' where seq = 7 and stream_no = {STREAM.format('whole')}",
            "I1",
            "an event's columns are not what its bytes say",
            {"session_id": "whole", "seq": 7, "type": "note"},
        ),
        (
            f"update ledger.events set raw = 'no JSON' where seq = 3 and stream_no = {STREAM.format('whole')}",
            "I1",
            "an event's bytes are no event any more",
            {"session_id": "whole", "seq": 3, "reason": "json"},
        ),
        (
            f"update ledger.events set kafka_offset = 40 where seq = 3 and stream_no = {STREAM.format('whole')}",
            "I1",
            "a batch's accepted events are not those in the ledger",
            {"partition": 0, "from_offset": 0, "to_offset": 8, "last_position": 40},
        ),
        (
            "update ledger.ingest_progress set next_offset = next_offset + 1 where partition = 0",
            "I2",
            "a partition's batches do not span its offsets",
            {"partition": 0, "next_offset": 23, "last_batch_to": 22},
        ),
        (
            "update ledger.ingest_progress set flushed_batch = flushed_batch + 100 where partition = 1",
            "I3",
            "a partition's progress does not cover its batches",
            {"partition": 1},
        ),
        (
            "update projection_a.model_calls set output_tokens = output_tokens + 1 where message_id = 'm-2'",
            "I4",
            "model_calls.output_tokens is not what it should be",
            {"session_id": "fork", "column": "output_tokens", "stored": 21, "computed": 20},
        ),
        (
            f"update projection_a.turn_records set digest = 'x' where session_no = {SESSION.format('holed')}",
            "I4",
            "turn_records.digest is not what it should be",
            {"session_id": "holed", "table": "turn_records", "stored": "x"},
        ),
        (
            f"update projection_a.sessions set cost_micro_usd = cost_micro_usd - 1 where session_no = {SESSION.format('holed')}",
            "I5",
            "sessions.cost_micro_usd is not what it should be",
            {"session_id": "holed", "column": "cost_micro_usd"},
        ),
        (
            "delete from ledger.gaps",
            "I7",
            "a hole has no gap row",
            {"session_id": "holed", "from_seq": 1, "to_seq": 1, "state": "open"},
        ),
        (
            f"insert into ledger.gaps (stream_no, from_seq, to_seq, state, missing) values ({STREAM.format('whole')}, 2, 3, 'open', 2)",
            "I7",
            "a gap row has no hole",
            {"session_id": "whole", "from_seq": 2, "to_seq": 3, "missing": 2},
        ),
        (
            f"update ledger.streams set open_gaps = 0 where stream_no = {STREAM.format('holed')}",
            "I7",
            "a stream's count of open gaps is not what is missing",
            {"session_id": "holed", "stored": 0, "computed": 1},
        ),
    ],
)
def test_a_damage_is_named_with_its_invariant_and_its_row_and_nothing_else_is(
    damaged: Callable[..., Report], damage: str, invariant: str, what: str, named: dict[str, Any]
) -> None:
    report = damaged(damage)
    assert broken(report) == {invariant: {what}}
    (fault,) = report.faults[invariant]
    assert {key: fault.row.get(key) for key in named} == named


# --- a long session is proven piece by piece ----------------------------------------------------------------------------------------


def test_what_the_workers_wrote_holds_whichever_way_and_nothing_is_read_whole(
    damaged: Callable[..., Report],
) -> None:
    report = damaged("analyze ledger.sessions")
    assert report.holds
    assert (report.sessions, report.turns, report.events, report.notes) == (4, 4, 29, [])


PROVEN = sorted(refold.PROJECTED.keys() | resum.SET.keys())
"""Every table that is compared."""
PLACING = (
    "turn_no",
    "turn_key",
    "call_key",
    "tool_key",
    "part_key",
    "stream_no",
    "seq",
    "kind",
    "check",
    "digest",
)
"""Columns by which rows are found, joined or summed."""  # fmt: skip


@pytest.mark.parametrize("table", PROVEN)
def test_both_ways_find_the_same_rows(written: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is gone, one that stands twice, all of them gone, and columns that hold nothing any more."""
    with psycopg.connect(written) as link:
        load_as_microseconds(link)
        first = f"ctid = (select min(ctid) from projection_a.{table})"
        if not link.execute(f"select 1 from projection_a.{table}").fetchall():
            return
        damages = [f"delete from projection_a.{table} where {first}", f"delete from projection_a.{table}"]
        (keyed,) = link.execute(
            "select count(*) from pg_index where indrelid = %s::regclass and indisunique",
            [f"projection_a.{table}"],
        ).fetchone() or (0,)
        if not keyed:
            damages.append(
                f"insert into projection_a.{table} select * from projection_a.{table} where {first}"
            )
        damages += [
            f'update projection_a.{table} set "{name}" = null'
            for (name,) in link.execute(
                "select attname from pg_attribute where attrelid = %s::regclass and attname = any(%s) and not attnotnull",
                [f"projection_a.{table}", list(PLACING)],
            )
        ]
        for damage in damages:
            found = []
            for apart in (False, True):
                if apart:
                    in_pieces(monkeypatch)
                with link.transaction(force_rollback=True):
                    link.execute(damage)  # type: ignore[arg-type]
                    report = verify_on(link, PRICE, settle_seconds=0.0, shown=100)
                monkeypatch.undo()
                found.append(
                    sorted(
                        (one.invariant, one.what, repr(one.row))
                        for faults in report.faults.values()
                        for one in faults
                    )
                )
            assert found[0] == found[1], damage
            assert found[0] or damage.startswith("update"), damage


def test_a_session_whose_events_come_behind_what_was_let_go_of_is_read_whole_and_said_to_be(
    damaged: Callable[..., Report], way: str
) -> None:
    """Without its last event but one the turn has ended when its last event comes."""
    report = damaged(f"delete from ledger.events where seq = 4 and stream_no = {STREAM.format('whole')}")
    said = [
        "1 long sessions were read whole, because events of them come behind what was let go of: memory followed their length (default/whole)"
    ]
    assert report.notes == (said if way == "in pieces" else [])


def test_a_session_that_does_not_say_that_it_is_all_eval_is_summed_as_what_it_is(
    damaged: Callable[..., Report],
) -> None:
    report = damaged(
        f"update projection_a.session_facts set kind = 'eval' where session_no = {SESSION.format('holed')}"
    )
    assert broken(report) == {"I4": {"session_facts.kind is not what it should be"}}


@pytest.fixture
def long(written: str, way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A connection in whose transaction ``fork``, with its two turns, counts as long and is summed by blocks of one turn."""
    monkeypatch.setattr(blocks, "FAN", 2)
    monkeypatch.setattr(blocks, "LONG", 1)
    with psycopg.connect(written) as link:
        load_as_microseconds(link)
        (number,) = link.execute(f"select session_no from {SESSION.format('fork')} s").fetchone() or ()
        set_rows(Statements(link, "projection_a"), number, [{"turns": None, "basis": None}], PRICE)
        yield link
        link.rollback()


def test_the_shares_of_a_long_session_are_proven(long: psycopg.Connection[Any]) -> None:
    levels = long.execute(
        "select level, count(*) from projection_a.rollup_shares group by 1 order by 1"
    ).fetchall()
    assert levels == [(0, 1), (1, 2), (2, 1), (3, 1), (4, 1)]
    assert verify_on(long, PRICE, settle_seconds=0.0).holds


@pytest.mark.parametrize(
    ("damage", "what", "named"),
    [
        (
            "update projection_a.rollup_shares set share = replace(share, 'sonnet-4-5\",[1,0,', 'sonnet-4-5\",[2,0,') where level = 1 and block = 1",
            "a share is not what its turns add",
            {"session_id": "fork", "level": 1, "block": 1, "section": "ai", "key": ["anthropic", "claude-sonnet-4-5"]},
        ),
        (
            "update projection_a.rollup_shares set share = '{}' where level = 3",
            "a share is not what its turns add",
            {"session_id": "fork", "level": 3, "block": 0},
        ),
        (
            "update projection_a.rollup_shares set share = 'gone' where level = 2",
            "a share is not what its turns add",
            {"session_id": "fork", "level": 2, "stored": "gone"},
        ),
        (
            "delete from projection_a.rollup_shares where level = 1 and block = 0",
            "a block of turns has no share",
            {"session_id": "fork", "level": 1, "block": 0},
        ),
        (
            "insert into projection_a.rollup_shares select session_no, 1, 7, share from projection_a.rollup_shares where level = 3",
            "a share stands for no turns",
            {"session_id": "fork", "level": 1, "block": 7},
        ),
        (
            "update projection_a.rollup_shares set share = replace(share, 'whole', 'other') where level = 0",
            "shares of a session were made for something else than it is",
            {"session_id": "fork"},
        ),
        (
            "update projection_a.rollup_shares set share = 'gone' where level = 0",
            "shares of a session were made for something else than it is",
            {"session_id": "fork", "stored": "gone"},
        ),
        (
            "delete from projection_a.rollup_shares where level = 0",
            "shares of a session do not say what they were made for",
            {"session_id": "fork"},
        ),
    ],
)  # fmt: skip
def test_a_share_that_is_not_what_its_turns_add_is_named(
    long: psycopg.Connection[Any], damage: str, what: str, named: dict[str, Any]
) -> None:
    assert long.execute(damage).rowcount == 1  # type: ignore[call-overload]
    report = verify_on(long, PRICE, settle_seconds=0.0)
    assert broken(report) == {"I5": {what}}
    (fault,) = report.faults["I5"]
    assert {key: fault.row.get(key) for key in named} == named


def test_shares_that_are_gone_are_no_fault_they_are_made_anew(long: psycopg.Connection[Any]) -> None:
    long.execute("delete from projection_a.rollup_shares")
    assert verify_on(long, PRICE, settle_seconds=0.0).holds


def test_an_audit_row_that_is_gone_leaves_a_hole_in_the_chain(damaged: Callable[..., Report]) -> None:
    report = damaged("delete from ledger.ingest_batches where partition = 0 and from_offset = 8")
    assert broken(report) == {
        "I1": {"a batch's accepted events are not those in the ledger"},
        "I2": {"a batch does not begin where the one before it ended"},
    }
    row = report.faults["I2"][0].row
    assert (row["partition"], row["from_offset"], row["previous_to_offset"]) == (0, 21, 8)
    row = report.faults["I1"][0].row
    assert (row["accepted"], row["events"], row["first_position"], row["last_position"]) == (None, 13, 8, 20)


def test_a_next_offset_that_went_back_is_named_by_the_chain_and_by_the_order(
    damaged: Callable[..., Report],
) -> None:
    report = damaged("update ledger.ingest_progress set next_offset = next_offset - 1 where partition = 0")
    assert broken(report) == {
        "I2": {"a partition's batches do not span its offsets"},
        "I3": {"a partition's progress does not cover its batches"},
    }
    row = report.faults["I3"][0].row
    assert (row["partition"], row["next_offset"], row["last_batch_to"]) == (0, 21, 22)


def test_a_dead_letter_at_the_offset_of_an_event_is_named_twice(damaged: Callable[..., Report]) -> None:
    """Its batch lacks it, and another record ended as both; the finding of its session names the wrong place."""
    report = damaged("update ledger.dead_letters set kafka_offset = 5")
    assert broken(report) == {
        "I1": {
            "a batch's dead letters are not those in the ledger",
            "a record ended as an event and as a dead letter",
        },
        "I5": {"findings.rows is not what it should be"},
    }
    row = report.faults["I1"][0].row
    assert (row["partition"], row["from_offset"], row["to_offset"], row["first_position"]) == (0, 21, 22, 5)


def test_a_kept_hash_that_is_not_the_events_is_named(damaged: Callable[..., Report]) -> None:
    report = damaged("update ledger.conflicts set kept_sha256 = sha256('x')")
    (fault,) = report.faults["I1"]
    assert fault.what == "a conflict's kept hash is not that of the event"
    assert (fault.row["session_id"], fault.row["seq"]) == ("holed", 0)


def test_all_faults_are_counted_and_the_first_are_shown(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "insert into ledger.streams (session_no, producer, epoch, stream)"
        " select 900000 + n, 'p', 0, 'ledger' from generate_series(1, 25) as n"
    )
    assert (report.counts["I1"], len(report.faults["I1"])) == (25, 10)
    assert report.faults["I1"][0].row["session_no"] == 900001


def test_one_changed_fact_is_told_once_although_its_session_is_looked_at_twice(
    damaged: Callable[..., Report],
) -> None:
    """What is wrong with the sums needs a second look; what the first look told of the rest is not told again."""
    report = damaged(
        "update projection_a.turns set status = 'failed' where turn_key = 't-1' and session_no = "
        + SESSION.format("holed"),
        "update projection_a.sessions set tool_errors = 7 where session_no = " + SESSION.format("holed"),
    )
    assert report.counts == {"I1": 0, "I2": 0, "I3": 0, "I4": 1, "I5": 1, "I7": 0}


# --- a part of the ledger -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", ["fork", "default/fork"])
def test_one_session_is_looked_at_with_those_that_share_its_calls(
    damaged: Callable[..., Report], called: str
) -> None:
    report = damaged(
        "update projection_a.turns set status = 'failed' where turn_key = 't-1'",
        "update projection_a.turns set status = 'failed' where turn_key = 't-2'",
        "update ledger.ingest_progress set next_offset = next_offset - 1",
        scope=lambda link: one_session(link, called),
    )
    assert (report.sessions, report.turns, report.events, report.skipped) == (1, 2, 13, {"I2", "I3"})
    assert broken(report) == {"I4": {"turns.status is not what it should be"}}
    assert [(fault.row["session_id"], fault.row["key"]) for fault in report.faults["I4"]] == [
        ("fork", "t-1"),
        ("fork", "t-2"),
    ]
    assert report.not_checked[0].startswith("anything but default/fork: I2, I3,")


def test_a_session_id_of_two_tenants_is_a_question(written: str) -> None:
    with psycopg.connect(written) as link:
        link.execute(
            "insert into ledger.sessions (tenant, session_id, home_topic, home_partition)"
            " values ('other', 'whole', 't', 0), ('default', 'a/b', 't', 0), ('default/a', 'b', 't', 0)"
        )
        with pytest.raises(NoSuchSession) as told:
            one_session(link, "whole")
        assert str(told.value) == (
            "which session is 'whole': 'whole' of tenant 'default', 'whole' of tenant 'other'? "
            "Name one as tenant/session_id, or its tenant with --tenant."
        )
        found = one_session(link, "other/whole").session
        assert found is not None and (found.tenant, found.session_id) == ("other", "whole")
        with pytest.raises(NoSuchSession, match="which session is 'default/a/b'"):
            one_session(link, "default/a/b")
        found = one_session(link, "default/a/b", "default").session
        assert found is not None and found.session_id == "a/b"
        with pytest.raises(NoSuchSession, match="the ledger has no session 'nobody'"):
            one_session(link, "nobody")
        link.rollback()


def test_since_looks_at_what_came_in_since_then_and_says_what_it_left_out(
    damaged: Callable[..., Report],
) -> None:
    """`whole` and `holed` began long ago; of `holed` a contradiction came in later."""
    long_ago = [
        "update ledger.ingest_batches set committed_at = '2026-01-02T00:00:00Z' where from_offset = 0",
        "update ledger.dead_letters set recorded_at = '2026-01-02T00:00:00Z'",
    ]
    damage = [
        "update projection_a.turns set status = 'failed' where turn_key = 't-1'",
        "update ledger.ingest_batches set duplicates = duplicates + 1, accepted = accepted - 1 where from_offset = 0",
    ]
    since = 1_767_400_000_000_000  # 2026-01-03T00:26:40Z
    report = damaged(*long_ago, *damage, scope=lambda link: what_came_since(link, since))
    assert (report.sessions, report.partly) == (3, True)
    assert broken(report) == {"I4": {"turns.status is not what it should be"}}
    assert {fault.row["session_id"] for fault in report.faults["I4"]} == {"fork", "holed"}
    assert report.not_checked == [
        "batches committed before 2026-01-03T00:26:40.000000Z, and sessions of which no event, conflict or dead letter came in since"
    ]
    everything = damaged(*long_ago, *damage)
    assert everything.sessions == 4
    assert set(broken(everything)) == {"I1", "I4"}


def test_since_the_future_looks_at_nothing_and_says_so(written: str) -> None:
    settings = {"TURNLEDGER_DATABASE_URL": written}
    done = run("verify", "--since", "2999-01-01T00:00:00Z", environment=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 sessions, 0 turns, 0 events" in done.stdout
    assert done.stdout.splitlines()[-1] == "verify: what was looked at holds"


def test_a_time_that_is_none_is_a_sentence(written: str) -> None:
    done = run("verify", "--since", "yesterday", environment={"TURNLEDGER_DATABASE_URL": written})
    assert done.returncode == 2
    assert done.stderr.startswith("turnledger: --since 'yesterday' is no time: ")


# --- Kafka read again ---------------------------------------------------------------------------------------------------------------


def test_kafka_read_again_agrees_and_nobodys_offsets_move(left: Written) -> None:
    commit(left.topic, {0: 5, 1: 3})
    done = run("verify", "--topics", "--json", environment=left.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["holds"], found["records"], found["not_checked"], found["notes"]) == (True, RECORDS, [], [])
    assert group_offsets(left.topic) == {left.topic.group_id: {0: 5, 1: 3}}


def test_without_topics_the_comparison_with_kafka_is_said_to_be_missing(written: str) -> None:
    done = run("verify", environment={"TURNLEDGER_DATABASE_URL": written})
    assert (
        "not checked: the ledger against the records of Kafka: --topics reads them again"
        in done.stdout.splitlines()
    )


def test_bytes_that_no_figure_depends_on_are_seen_by_kafka_alone(
    damaged: Callable[..., Report], reread_after: Callable[..., Report]
) -> None:
    damage = (
        "update ledger.events set raw = convert_to(replace(convert_from(raw, 'UTF8'), 'unknown field', 'another word'), 'UTF8')"
        " where convert_from(raw, 'UTF8') like '%seal%'"
    )
    assert broken(damaged(damage)) == {}
    assert broken(damaged()) == {}  # and taken back: the other connection must not wait for it
    row = only(reread_after(damage), "I1")
    assert row == {
        "what": "the ledger holds other bytes than Kafka",
        "topic": row["topic"],
        "partition": 0,
        "position": 7,
        "tenant": "default",
        "session_id": "whole",
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "seq": 7,
    }


@pytest.mark.parametrize(
    ("damage", "whats", "named"),
    [
        (
            f"delete from ledger.events where seq = 4 and stream_no = {STREAM.format('fork')}",
            {"a record of Kafka is neither in the ledger nor in dead letters or conflicts", "a batch's counts are not what Kafka's records give"},
            {"partition": 0, "position": 12, "session_id": "fork", "seq": 4},
        ),
        (
            "delete from ledger.receipts where ordinal = 1; delete from ledger.events where seq = -2",
            {"a record of Kafka is neither in the ledger nor in dead letters or conflicts", "a batch's counts are not what Kafka's records give"},
            {"partition": 1, "position": 8, "session_id": "unnumbered", "seq": None, "receipt_key": "r1"},
        ),
        (
            "delete from ledger.dead_letters",
            {"a record of Kafka that is no event has no dead letter", "a batch's counts are not what Kafka's records give"},
            {"partition": 0, "position": 21, "reason": "wrong_type", "field": "seq"},
        ),
        (
            "delete from ledger.conflicts",
            {"a record that contradicts the event of its key has no receipt"},
            {"partition": 1, "position": 6, "session_id": "holed", "seq": 0},
        ),
        (
            "update ledger.ingest_batches set accepted = accepted - 1, duplicates = duplicates + 1 where partition = 0 and from_offset = 8",
            {"a batch's counts are not what Kafka's records give"},
            {"partition": 0, "from_offset": 8, "accepted": 12, "accepted_in_kafka": 13, "duplicates_in_kafka": 0},
        ),
        (
            "update ledger.ingest_batches set records = records - 1, holes = 1, accepted = accepted - 1 where partition = 0 and from_offset = 8",
            {"a batch read fewer records than Kafka holds"},
            {"partition": 0, "from_offset": 8, "records": 12, "in_kafka": 13},
        ),
        (
            "update ledger.ingest_progress set next_offset = 40 where partition = 1",
            {"the log ends before what was applied: the topic was made anew, or cut"},
            {"partition": 1, "log_end": 10, "next_offset": 40},
        ),
        (
            f"update ledger.sessions set session_id = 'renamed' where session_no = {SESSION.format('holed')}",
            {
                "an event stands under names that Kafka does not say",
                "a record of Kafka is neither in the ledger nor in dead letters or conflicts",
                "a batch's counts are not what Kafka's records give",
            },
            {"partition": 1, "position": 0, "session_id": "renamed", "seq": 0},
        ),
    ],
)  # fmt: skip
def test_what_kafka_holds_and_the_ledger_does_not_is_named(
    reread_after: Callable[..., Report], damage: str, whats: set[str], named: dict[str, Any]
) -> None:
    report = reread_after(*damage.split("; "))
    assert broken(report) == {"I1": whats}
    row = report.faults["I1"][0].row
    assert {key: row.get(key) for key in named} == named


def test_kafka_is_read_again_for_one_session(reread_after: Callable[..., Report], written: str) -> None:
    with psycopg.connect(written) as link:
        scope = one_session(link, "holed")
    report = reread_after("delete from ledger.conflicts", "delete from ledger.dead_letters", scope=scope)
    assert broken(report) == {"I1": {"a record that contradicts the event of its key has no receipt"}}


def test_a_topic_that_the_broker_does_not_have_is_said_and_not_made(
    reread_after: Callable[..., Report], left: Written
) -> None:
    report = reread_after("update ledger.ingest_progress set topic = 'nowhere'")
    assert report.not_checked == [
        f"I1 of nowhere against Kafka: the broker at {left.topic.bootstrap} has no such topic"
    ]
    assert "nowhere" not in topics_of(left.topic.bootstrap)


def test_what_has_left_retention_is_said_and_no_fault(
    stack: servers.Servers, database: str, start: Callable[..., Running]
) -> None:
    topic = create_topic(stack.kafka_bootstrap, 1)
    environment = topic.environment() | {"TURNLEDGER_DATABASE_URL": database}
    worker = start("worker", "--health-port", "0", environment=environment)
    for one in exchange("s", 0, "t", "m"):
        produce(topic, _sent([one], 0))
    eventually(partial(_applied, database, 6, [worker]), what="all is applied")
    worker.stop()
    delete_before(topic, 4)
    assert run("rollup", "--once", environment=environment).returncode == 0
    done = run("verify", "--topics", environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"not checked: offsets 0 to 3 of partition 0 of {topic.name} against Kafka: they have left retention"
        in done.stdout.splitlines()
    )
    assert ", 2 records of Kafka" in done.stdout


def test_a_broker_that_does_not_answer_is_a_sentence(written: str) -> None:
    settings = {"TURNLEDGER_DATABASE_URL": written, "TURNLEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:9"}
    done = run("verify", "--topics", "--settle", "0", environment=settings)
    assert done.returncode == 2
    assert done.stderr.startswith("turnledger: the broker at 127.0.0.1:9 does not answer")


async def _with_admin(bootstrap: str, ask: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return await ask(admin)
    finally:
        await admin.close()


def commit(topic: Topic, offsets: dict[int, int]) -> None:
    """Commit these offsets by partition for the topic's group, as its worker would."""

    async def work() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=topic.bootstrap, group_id=topic.group_id)
        await consumer.start()
        try:
            places = {TopicPartition(topic.name, number): offset for number, offset in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)
        finally:
            await consumer.stop()

    run_apart(work())


def group_offsets(topic: Topic) -> dict[str, dict[int, int]]:
    """Committed offsets of the topic by group and partition, for every group of the broker that has any."""

    async def ask(admin: AIOKafkaAdminClient) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for group, _ in await admin.list_consumer_groups():
            offsets = await admin.list_consumer_group_offsets(group)
            ours = {at.partition: one.offset for at, one in offsets.items() if at.topic == topic.name}
            if ours:
                found[group] = ours
        return found

    return dict(run_apart(_with_admin(topic.bootstrap, ask)))


def topics_of(bootstrap: str) -> list[str]:
    return list(run_apart(_with_admin(bootstrap, lambda admin: admin.list_topics())))


def delete_before(topic: Topic, offset: int) -> None:
    async def ask(admin: AIOKafkaAdminClient) -> None:
        await admin.delete_records({TopicPartition(topic.name, 0): RecordsToDelete(before_offset=offset)})

    run_apart(_with_admin(topic.bootstrap, ask))


# --- beside live workers ------------------------------------------------------------------------------------------------------------


def test_a_fork_that_appears_after_the_first_snapshot_is_no_fault(
    damaged: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who shares calls with whom is read once; a session that began to share one meanwhile is looked at again."""
    known = [resum.Families()]
    monkeypatch.setattr(
        verifying, "families", lambda link, slot: known.pop() if known else resum.families(link, slot)
    )
    assert broken(damaged("analyze ledger.sessions")) == {}
    assert not known


def test_what_a_worker_has_still_to_write_is_no_fault(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "update projection_a.turns set status = 'open' where turn_key = 't-2'",
        "update ledger.ingest_progress set flushed_batch = 0",
    )
    assert report.counts["I4"] == 0
    assert report.unsettled == ["default/fork"]
    assert not report.holds


def test_a_marked_rollup_is_no_fault(damaged: Callable[..., Report]) -> None:
    report = damaged(
        "update projection_a.sessions set output_tokens = 0 where session_no = (select session_no from ledger.sessions where session_id = 'holed')",
        "insert into ledger.marks (session_no) select session_no from ledger.sessions where session_id = 'holed'",
    )
    assert report.counts["I5"] == 0
    assert report.unsettled == ["default/holed"]


def test_a_fault_ends_with_status_1_and_the_name_of_what_is_broken(
    written: str, stack: servers.Servers
) -> None:
    url = databases.create(stack.database_url, template=written.rpartition("/")[2])
    try:
        with psycopg.connect(url) as link:
            link.execute("update projection_a.turns set status = 'failed' where turn_key = 't-2'")
        done = run("verify", "--settle", "0", environment={"TURNLEDGER_DATABASE_URL": url})
        assert done.returncode == 1
        assert "I4  BROKEN" in done.stdout
        assert (
            "session_id=fork  table=turns  key=t-2  column=status  stored=failed  computed=completed"
            in done.stdout
        )
        assert done.stdout.splitlines()[-1] == "verify: I4 does not hold"
    finally:
        databases.drop(stack.database_url, url)


def test_projections_and_gaps_that_were_damaged_are_whole_again_once_flushed_batch_is_set_back(
    left: Written, stack: servers.Servers, start: Callable[..., Running]
) -> None:
    """What the operations page tells people to do."""
    url = databases.create(stack.database_url, template=left.url.rpartition("/")[2])
    settings = left.environment() | {"TURNLEDGER_DATABASE_URL": url}
    try:
        with psycopg.connect(url) as link:
            link.execute("delete from projection_a.turns where turn_key = 't-2'")
            link.execute("update projection_a.model_calls set output_tokens = 7")
            link.execute("delete from ledger.gaps")
            link.execute("update ledger.ingest_progress set flushed_batch = 0")
        worker = start("worker", "--health-port", "0", environment=settings)
        start("rollup", "--health-port", "0", environment=settings)

        def whole() -> bool:
            assert worker.running(), worker.output()
            with psycopg.connect(url) as link:
                (folded,) = link.execute(
                    "select bool_and(flushed_batch > 0) from ledger.ingest_progress"
                ).fetchone() or (False,)
            return bool(folded) and _settled(url)

        eventually(whole, what="everything is folded again", seconds=90)
        done = run("verify", environment=settings)
        assert done.returncode == 0, done.stdout
    finally:
        databases.drop(stack.database_url, url)


def test_a_database_that_was_never_migrated_is_a_sentence(empty_database: str) -> None:
    done = run("verify", environment={"TURNLEDGER_DATABASE_URL": empty_database})
    assert done.returncode == 2
    assert done.stderr.startswith("turnledger: the database at ")
    assert "run `turnledger db migrate`" in done.stderr
