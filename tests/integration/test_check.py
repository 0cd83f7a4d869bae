"""`turnledger sessions check`: every fault that was planted by hand is named, with a reason from its own evidence, and a clean session has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest

from tests.fixtures.capsem_db import early, full
from tests.fixtures.planted import FAULTS, Fault, clean
from tests.stack import databases, servers
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, create_topic, produce
from turnledger.doctor.check import Checked, check_all, check_one, newest
from turnledger.doctor.listing import Wanted, list_sessions
from turnledger.doctor.why import REASONS
from turnledger.harness.importer import read_file
from turnledger.pricing import packaged, price_call

PRICE = partial(price_call, packaged())
CLEAN = ("clean", "untouched")


@pytest.fixture(scope="module")
def url(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database that the workers wrote from the clean sessions and those with one fault each."""
    address = databases.create(stack.database_url, template=database_template)
    topic = create_topic(stack.kafka_bootstrap, 1)
    environment = topic.environment() | {"TURNLEDGER_DATABASE_URL": address}
    folder = tmp_path_factory.mktemp("check")
    records = [
        Record(json.dumps(one).encode(), f"default/{name}".encode(), 0)
        for name in CLEAN
        for one in clean(name)
    ]
    records += [record for fault in FAULTS for record in fault.records()]
    for make in (early, full):
        reading = read_file(make(folder / make.__name__ / "session.db"))
        records += [
            Record(json.dumps(one).encode(), f"default/{make.__name__}".encode(), 0) for one in reading.events
        ]
    running = [
        Running((name, "--health-port", "0"), environment, folder / f"{name}.log")
        for name in ("worker", "rollup")
    ]
    try:
        produce(topic, records)
        eventually(
            partial(_settled, address, len(records)), what="the workers have written everything", seconds=90
        )
    finally:
        for one in running:
            one.stop()
    yield address
    databases.drop(stack.database_url, address)


def _settled(url: str, records: int) -> bool:
    with psycopg.connect(url) as link:
        row = link.execute(
            "select not exists (select from ledger.marks), not exists (select from projection_a.hour_marks),"
            " bool_and(flushed_batch >= (select max(batch_no) from ledger.ingest_batches b"
            " where b.topic = p.topic and b.partition = p.partition)), coalesce(sum(next_offset), 0) = %s from ledger.ingest_progress p",
            (records,),
        ).fetchone()
    return row is not None and all(row)


@pytest.fixture
def checked(url: str) -> Iterator[Callable[..., Checked]]:
    """``checked("session", "update …")``: what the doctor says of a session after that was done; it is taken back before the next."""
    with psycopg.connect(url) as link:

        def look(session: str, *statements: str) -> Checked:
            link.rollback()
            for statement in statements:
                assert link.execute(statement).rowcount != 0, statement  # type: ignore[arg-type]
            (found,) = check_one(link, PRICE, session, rows=2, settle_seconds=0.0).sessions
            return found

        yield look
        link.rollback()


def named(found: Checked) -> dict[str, str]:
    return {one.finding.check: one.finding.severity for one in found.findings}


@pytest.mark.parametrize("session", CLEAN)
def test_nothing_is_odd_about_a_clean_session(checked: Callable[..., Checked], session: str) -> None:
    assert named(checked(session)) == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_named_and_nothing_else(checked: Callable[..., Checked], fault: Fault) -> None:
    found = checked(fault.name)
    assert named(found) == fault.checks
    reasons = [one.reason for one in found.findings]
    assert any(fault.said in reason.why for reason in reasons), [reason.why for reason in reasons]
    assert all(reason.next for reason in reasons)


IMPORTED = {
    "early": {"turn_without_end": "warning", "mcp_without_tool_call": "info"},
    "full": {
        "turn_without_end": "warning",
        "null_tokens": "warning",
        "tool_missing_result": "warning",
        "fs_overflow": "warning",
        "mcp_without_tool_call": "info",
        "request_without_security_rule": "info",
    },
}


@pytest.mark.parametrize("session", IMPORTED)
def test_what_is_wrong_in_an_imported_ledger_of_a_sandbox_is_found(
    checked: Callable[..., Checked], session: str
) -> None:
    assert named(checked(session)) == IMPORTED[session]


NUMBER = "(select session_no from ledger.sessions where session_id = '{}')"


@pytest.mark.parametrize(
    ("damage", "check", "said"),
    [
        (
            "update projection_a.sessions set cost_micro_usd = cost_micro_usd + 1 where session_no = {clean}",
            "rollup_differs_from_projection",
            "sessions.cost_micro_usd is not what it should be, stored 1231, computed 1230, by +1",
        ),
        (
            "update projection_a.tool_usage set call_count = 2 where session_no = {clean} and tool_name = 'write_file'",
            "rollup_differs_from_projection",
            "tool_usage.call_count is not what it should be (key ['write_file', 'native']), stored 2, computed 1, by +1",
        ),
        (
            "update projection_a.turns set status = 'failed' where session_no = {clean}",
            "projection_differs_from_fold",
            "turns.status is not what it should be (key t-1), stored 'failed', computed 'completed'",
        ),
        (
            "delete from projection_a.net_events where session_no = {clean}",
            "projection_differs_from_fold",
            "net_events lacks a row",
        ),
        (
            "insert into ledger.gaps (stream_no, from_seq, to_seq, state, missing) select stream_no, 30, 31, 'open', 2"
            " from ledger.streams where session_no = {clean}",
            "projection_differs_from_fold",
            "a gap row has no hole",
        ),
        (
            "delete from ledger.events where seq = 16 and stream_no in (select stream_no from ledger.streams where session_no = {clean})",
            "ledger_contradicts_itself",
            "a number counts as seen whose event is not in the ledger",
        ),
    ],
    ids=["a micro-dollar", "a tool counted twice", "a turn's status", "a lost row", "a gap without a hole", "a lost event"],
)  # fmt: skip
def test_damage_to_what_was_made_is_named_with_what_it_should_be(
    checked: Callable[..., Checked], damage: str, check: str, said: str
) -> None:
    found = checked("clean", damage.format(clean=NUMBER.format("clean")))
    told = {one.finding.check: one for one in found.findings}
    assert told[check].finding.severity == "error"
    assert said in told[check].reason.why


def test_a_doubled_row_of_an_mcp_call_is_named(checked: Callable[..., Checked]) -> None:
    found = checked(
        "clean",
        "insert into projection_a.tool_calls select * from projection_a.tool_calls where tool_name = 'search__find' and session_no = "
        + NUMBER.format("clean"),
    )
    assert named(found) == {"projection_differs_from_fold": "error"}
    assert "tool_calls has two rows of one key" in found.findings[0].reason.why


def test_all_sessions_at_once_name_the_same_and_only_those_with_findings(url: str) -> None:
    with psycopg.connect(url) as link:
        found = check_all(link, PRICE, settle_seconds=0.0)
    assert {one.session_id: named(one) for one in found.sessions} == {
        fault.name: fault.checks for fault in FAULTS
    } | IMPORTED
    assert (found.looked_at, found.ledger, found.unsettled) == (
        len(FAULTS) + len(CLEAN) + len(IMPORTED),
        [],
        [],
    )


def test_a_red_finding_is_status_1_and_anything_less_is_0(url: str) -> None:
    environment = {"TURNLEDGER_DATABASE_URL": url}
    assert run("sessions", "check", "no-calls", environment=environment).returncode == 1
    done = run("sessions", "check", "orphan-name", environment=environment)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "check: 1 session, 1 warning")
    assert "\x1b" not in done.stdout


def test_json_is_one_object_with_the_rows_that_were_asked_for(url: str) -> None:
    done = run(
        "sessions",
        "check",
        "default/open-gap",
        "--rows",
        "1",
        "--json",
        environment={"TURNLEDGER_DATABASE_URL": url},
    )
    found = json.loads(done.stdout)
    (session,) = found["sessions"]
    (finding,) = session["findings"]
    assert (found["red"], session["session_id"], session["worst"]) == (True, "open-gap", "error")
    assert list(finding) == ["check", "severity", "count", "rows", "why", "next"]
    assert finding["rows"] == [
        {"producer": "harness", "epoch": 0, "stream": "ledger", "from_seq": 7, "to_seq": 8, "state": "open"}
    ]
    assert session["counts"]["tool_calls"] == 2
    assert session["tools"][0] == {
        "tool_name": "search__find",
        "origin": "mcp",
        "status": "ok",
        "calls": 1,
        "average_ms": 7.0,
    }
    assert [len(rows) for rows in session["latest"].values()] == [1, 1, 1, 1, 1]


def test_without_a_name_the_session_that_is_listed_first_is_looked_at(url: str) -> None:
    with psycopg.connect(url) as link:
        (listed,) = list_sessions(link, Wanted(count=1))
        ref = newest(link)
    assert (ref.tenant, ref.session_id) == (listed["tenant"], listed["session_id"])


CONTRACT_13 = {
    "open_gap", "declared_loss", "superseded_stream", "conflict", "dead_letter", "key_mismatch", "event_after_close", "late_after_vacuum",
    "unknown_event_type", "newer_schema_version", "wrong_type_in_payload", "secret_redacted_at_ingest",
    "turn_open_in_ended_session", "turn_without_start", "turn_without_end", "turn_index_ambiguous", "turn_two_indexes", "fork_cycle",
    "call_without_record", "message_id_reused", "traffic_without_model_call", "null_model", "null_tokens", "inherited_without_source",
    "usage_unknown_convention", "usage_negative_bucket", "usage_unknown_start", "usage_counter_reset", "usage_counter_contradiction",
    "usage_open_predecessor", "usage_copies_differ", "usage_call_total_differs", "usage_rollup_differs", "usage_snapshot_without_call",
    "unpriced_model", "tool_missing_result", "tool_orphan_result", "mcp_without_tool_call", "response_names_no_call",
    "projection_differs_from_fold", "rollup_differs_from_projection",
}  # fmt: skip


def test_every_check_of_the_contract_has_a_reason_and_a_place() -> None:
    assert set(REASONS) >= CONTRACT_13
