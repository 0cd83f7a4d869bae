"""`turnledger verify`: green on what the workers wrote, and every kind of damage is named with its invariant and its row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.stack import databases, servers
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, create_topic, produce
from turnledger.doctor.faults import Report
from turnledger.doctor.verify import verify_on
from turnledger.pricing import packaged, price_call

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


def records() -> list[Record]:
    """Four sessions: a whole one; its fork, which holds the same call; one with a gap, a conflict and a duplicate; one without numbers."""
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
    sent = [
        Record(json.dumps(one).encode(), key=f"default/{one['session_id']}".encode())
        for one in (*whole, *fork, *holed, *again, *unnumbered)
    ]
    return [*sent, Record(b'{"session_id":"whole","type":"x","seq":"1"}', key=b"default/whole")]


@pytest.fixture(scope="module")
def written(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database that the workers wrote and left, nothing on its way."""
    url = databases.create(stack.database_url, template=database_template)
    topic: Topic = create_topic(stack.kafka_bootstrap, 2)
    environment = topic.environment() | {"TURNLEDGER_DATABASE_URL": url}
    produce(topic, records())
    folder = tmp_path_factory.mktemp("verify")
    running = [
        Running(("worker", "--health-port", "0"), environment, folder / "worker.log"),
        Running(("rollup", "--health-port", "0"), environment, folder / "rollup.log"),
    ]
    try:

        def settled() -> bool:
            assert all(one.running() for one in running), [one.output() for one in running]
            with psycopg.connect(url) as link:
                row = link.execute(
                    "select coalesce(sum(next_offset), 0) = %s, not exists (select from ledger.marks),"
                    " not exists (select from projection_a.hour_marks),"
                    " bool_and(flushed_batch >= (select max(batch_no) from ledger.ingest_batches b"
                    " where b.topic = p.topic and b.partition = p.partition)) from ledger.ingest_progress p",
                    (len(records()),),
                ).fetchone()
            return row is not None and all(row)

        eventually(settled, what="the workers have written everything", seconds=90)
    finally:
        for one in running:
            one.stop()
    yield url
    databases.drop(stack.database_url, url)


@pytest.fixture
def damaged(written: str) -> Iterator[Callable[..., Report]]:
    """``damaged("update …")``: the report on a database to which that was done; it is taken back before the next."""
    with psycopg.connect(written) as link:

        def judge(*statements: str) -> Report:
            link.rollback()
            for statement in statements:
                assert link.execute(statement).rowcount != 0, statement  # type: ignore[arg-type]
            return verify_on(link, PRICE, settle_seconds=0.0)

        yield judge
        link.rollback()


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
        "insert into ledger.events (day, batch_no, stream_no, seq, kafka_offset, type, raw)"
        " select e.day + 1, e.batch_no, e.stream_no, e.seq, e.kafka_offset, e.type, e.raw from ledger.events e"
        " join ledger.streams st using (stream_no) join ledger.sessions s using (session_no) where s.session_id = 'holed' and e.seq = 2"
    )
    assert any(
        fault.what == "an event is in the ledger twice" and fault.row["seq"] == 2
        for fault in report.faults["I1"]
    )


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
    ],
)
def test_a_rollup_that_is_not_its_recomputation_is_named(
    damaged: Callable[..., Report], damage: str, what: str
) -> None:
    report = damaged(damage)
    assert what in {fault.what for fault in report.faults["I5"]}
    assert {name for name, count in report.counts.items() if count} == {"I5"}


def test_a_hole_without_a_row_and_a_row_without_a_hole_are_named(damaged: Callable[..., Report]) -> None:
    row = damaged("delete from ledger.gaps").faults["I7"][0]
    assert (row.what, row.row["session_id"], row.row["from_seq"]) == ("a hole has no gap row", "holed", 1)
    row = damaged(
        "insert into ledger.gaps (stream_no, from_seq, to_seq, state, missing)"
        " select stream_no, 2, 3, 'open', 2 from ledger.streams st join ledger.sessions s using (session_no) where s.session_id = 'whole'"
    ).faults["I7"][0]
    assert (row.what, row.row["session_id"], row.row["to_seq"]) == ("a gap row has no hole", "whole", 3)


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


def test_a_database_that_was_never_migrated_is_a_sentence(empty_database: str) -> None:
    done = run("verify", environment={"TURNLEDGER_DATABASE_URL": empty_database})
    assert done.returncode == 2
    assert done.stderr.startswith("turnledger: the database at ")
    assert "run `turnledger db migrate`" in done.stderr
