"""The demo as a person runs it: it ends well with the proof, twice, and ends badly when a figure is not what was sent."""

from __future__ import annotations

import json
import re
import secrets
import sys
from pathlib import Path

import psycopg
import pytest

from tests.integration.test_sql_page import queries, shown
from tests.stack.commands import Running, run
from tests.stack.servers import Servers
from tests.stack.topics import Topic
from turnledger.demo.fleet import fleet
from turnledger.demo.ledger_view import Account
from turnledger.demo.screen import Screen
from turnledger.demo.services import Services
from turnledger.demo.show import DemoFailed, totals

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def environment(topic: Topic, database: str, tmp_path: Path) -> dict[str, str]:
    """Servers of the test run, a state folder of the test's own."""
    return topic.environment() | {
        "TURNLEDGER_DATABASE_URL": database,
        "TURNLEDGER_STATE": str(tmp_path / "state"),
    }


@pytest.mark.partitions(8)
def test_the_short_demo_runs_twice_and_proves_both_times(environment: dict[str, str], database: str) -> None:
    for seed in ("7", "8"):
        done = run("demo", "--short", "--seed", seed, environment=environment, seconds=400)
        said = done.stdout
        assert done.returncode == 0, said + done.stderr
        assert "Traceback" not in said + done.stderr
        assert "using the broker and the database named by TURNLEDGER_KAFKA_BOOTSTRAP" in said
        assert re.search(r"kill -9 \d+: worker-1 is dead", said)
        assert "worker-1 is started again" in said
        assert re.search(r"^records +1,\d\d\d +1,\d\d\d$", said, re.MULTILINE)
        assert re.search(r"recorder +\d+ +\d+ +3 +open +still$", said, re.MULTILINE)
        assert re.search(r"recorder +\d+ +\d+ +6 +filled_late +[\d.]+ s$", said, re.MULTILINE)
        assert re.search(
            r"-vm-02 +ledger +\d+ +[0-9a-f]{12} +[0-9a-f]{12} +1 +partition \d, offset \d+$",
            said,
            re.MULTILINE,
        )
        assert re.search(r"^ +\d +\d+ +.+ +json +it is not JSON", said, re.MULTILINE)
        assert all(f"SQL {number}: " in said for number in (1, 2, 3))
        assert "\nverify: all invariants hold\n" in said
        assert re.search(r"^[\d,]+ events per second", said, re.MULTILINE)
        assert "turnledger sessions show demo-" in said
        assert f"psql {database}" in said
    with psycopg.connect(database) as link:
        runs = link.execute(
            "select count(distinct substring(session_id from '^demo-[^-]+-[^-]+-[^-]+')), count(*) from turnledger.sessions where tenant <> 'sandbox'"
        ).fetchone()
    assert runs == (2, 2 * (8 + 10))  # the fleet, and the VMs that came back from an outage
    answers_of_the_sql_page(environment)


def answers_of_the_sql_page(environment: dict[str, str]) -> None:
    """What docs/sql.md tells a reader to type after the demo gives the answers that it prints."""
    name = f"page_{secrets.token_hex(4)}"
    made = run("db", "roles", "create", name, "--tenant", "sandbox", environment=environment)
    assert made.returncode == 0, made.stderr
    try:
        with psycopg.connect(made.stdout.splitlines()[-1], autocommit=True) as reader:
            for query, names, rows in (one.values for one in queries()):
                cursor = reader.execute(query)
                assert [column.name for column in cursor.description or []] == names
                assert [[shown(value) for value in row] for row in cursor] == rows, query
    finally:
        assert run("db", "roles", "drop", name, environment=environment).returncode == 0


def a_session_of_claude_code(path: Path) -> None:
    """One question, one answer, as Claude Code writes it."""
    common: dict[str, object] = {
        "sessionId": "5f0e7c1a-1111-4222-8333-944455556666",
        "cwd": "/w",
        "version": "2.0.0",
        "isSidechain": False,
    }
    lines: list[dict[str, object]] = [
        {
            "type": "user",
            "uuid": "u1",
            "parentUuid": None,
            "timestamp": "2026-01-05T09:00:00.000Z",
            "message": {"role": "user", "content": "Say hello"},
        },
        {
            "type": "assistant",
            "uuid": "a1",
            "parentUuid": "u1",
            "timestamp": "2026-01-05T09:00:03.000Z",
            "requestId": "req_1",
            "message": {
                "id": "msg_demo_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [{"type": "text", "text": "Hello"}],
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": 1000,
                    "cache_read_input_tokens": 0,
                    "cache_creation_input_tokens": 0,
                    "output_tokens": 200,
                },
            },
        },
    ]
    path.write_text("".join(json.dumps(common | line) + "\n" for line in lines))


def test_a_persons_own_files_are_imported_and_priced(environment: dict[str, str], tmp_path: Path) -> None:
    """1,000 input tokens at 3 dollars a million and 200 output tokens at 15: 0.006 dollars. A second import changes nothing."""
    file = tmp_path / "5f0e7c1a-1111-4222-8333-944455556666.jsonl"
    a_session_of_claude_code(file)
    for _ in range(2):
        done = run("demo", str(file), environment=environment, seconds=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"claude-sonnet-4-5 +1 +1 +0 +0 +1,000 +200 +\$0\.006 +1/1", done.stdout), (
            done.stdout
        )
        assert "sessions: 1, together $0.006\n" in done.stdout
        assert "verify: all invariants hold" in done.stdout


def test_a_file_that_does_not_exist_is_said_before_anything_starts(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = run("demo", str(tmp_path / "none.jsonl"), environment=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "none.jsonl does not exist" in done.stderr


def test_a_figure_that_is_not_what_was_sent_fails_the_demo() -> None:
    sent = fleet(seconds=15)
    right = Account(sent.records, sent.accepted, sent.counts["duplicate"], 1, 1)
    totals(Screen(), sent, right)
    with pytest.raises(DemoFailed, match="the fleet sent"):
        totals(Screen(), sent, Account(sent.records, sent.accepted - 1, sent.counts["duplicate"] + 1, 1, 1))


def test_down_stops_the_processes_of_a_demo_that_was_killed(tmp_path: Path, stack: Servers) -> None:
    """The note of a killed demo names its services; a stranger that got one of the ids since is left alone."""
    state = tmp_path / "state"
    (state / "demo").mkdir(parents=True)
    # Each on a port of its own: whoever came second at the default one would end by itself, sooner or later than it is looked at.
    command = ("worker", "--health-port", "0")
    left = Running(command, environment=stack.addresses.environment(), log=tmp_path / "log")
    stranger = Running(command, environment=stack.addresses.environment(), log=tmp_path / "other")
    try:
        from turnledger.devstack.process import Process

        mine = Process.of(left.pid)
        assert mine is not None
        notes = [mine.to_json(), {"pid": stranger.pid, "started": "another life"}]
        (state / "demo" / "services.json").write_text(json.dumps(notes))
        done = run("demo", "--down", environment={"TURNLEDGER_STATE": str(state)})
        assert done.returncode == 0, done.stderr
        assert "stopped 1 processes" in done.stdout
        assert not left.running()
        assert stranger.running()
        assert Services.stop_leftovers(state / "demo" / "services.json") == 0
    finally:
        for running in (left, stranger):
            if running.running():
                running.kill9()


def test_the_demo_needs_no_command_on_the_path() -> None:
    assert run("demo", "--help", environment={"PATH": str(Path(sys.executable).parent)}).returncode == 0
