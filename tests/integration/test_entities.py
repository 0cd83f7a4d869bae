"""Rows of contract 11 through the broker, the worker and the database: model items, tool responses, bodies, security and requests."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.ingesting import at, environment, event, until_applied, until_projected
from tests.stack import commands
from tests.stack.topics import Record, Topic, produce
from turnledger.contract.times import instant, utc_text

SESSION = "entities"
WHOLE = b"hello world"


def story() -> list[Record]:
    """A turn of tool use, a body in two parts that arrive in the wrong order, decisions of the policy, and one event without a number."""
    numbers = iter(range(100))

    def say(second: float, type_: str, payload: dict[str, Any], **more: Any) -> Record:
        ids = {"turn_id": "t", "trace_id": "x", **more}
        return event(SESSION, next(numbers), type_, occurred_at=at(second), payload=payload, **ids)

    call = {"provider": "anthropic", "model": "m", "usage": {"input": 4, "output": 2, "cache_read": 0}}
    part = {
        "for_event_id": "00000000000a", "source": "net", "direction": "response", "original_bytes": 11, "truncated": False,
        "sha256": sha256(WHOLE).hexdigest(), "parts": 2,
    }  # fmt: skip
    shared = {
        "for_event_id": "00000000000a",
        "rule_id": 7,
        "rule_action": "ask",
        "detection_level": "high",
        "rule": {"a": 1},
        "event": [2],
    }
    decided = {"stage": "rule", "previous": "allow", "requested": "ask", "effective": "block"}
    return [
        say(0, "turn.started", {}),
        say(1, "message.recorded", {"role": "user", "text": "hello"}),
        say(2, "model_call.completed", {**call, "message_id": "m1", "thinking": "hm", "text": "I look"}, model_call_id="c1"),
        say(3, "tool_call.requested", {"tool_name": "read", "arguments": {"path": "/a"}}, model_call_id="c1", tool_call_id="u"),
        say(4, "tool_call.completed", {"status": "ok", "preview": "a line"}, tool_call_id="u"),
        say(5, "tool_results.submitted", {"tool_call_ids": ["u"], "context_tokens": 70}, model_call_id="c2"),
        say(6, "message.recorded", {"role": "user", "text": "hello"}, model_call_id="c2"),  # sent again
        say(7, "model_call.completed", {**call, "message_id": "m2", "text": "done"}, model_call_id="c2"),
        say(8, "net.requested", {"domain": "a.example", "port": 443, "decision": "denied", "policy_rule": "r", "request_headers": {"accept": "*/*"}}),
        say(9, "body.recorded", {**part, "part": 1, "data": b64encode(b" world").decode()}),
        say(10, "body.recorded", {**part, "part": 0, "data": b64encode(b"hello").decode()}),
        say(11, "security.decided", {**shared, **decided}),
        say(12, "security.asked", {**shared, **decided, "ask_id": "q", "status": "pending"}),
        event(
            SESSION, None, "message.recorded", occurred_at=at(13), turn_id="t", trace_id="x", receipt_key="r/1",
            payload={"role": "assistant", "content": [{"type": "text", "text": "bye"}]},
        ),
        say(14, "turn.completed", {"status": "completed"}),
    ]  # fmt: skip


@pytest.fixture
def written(topic: Topic, database: str, start: Callable[..., commands.Running]) -> str:
    """The database after the story went through a worker."""
    worker = start("worker", environment=environment(topic, database))
    produce(topic, story())
    until_applied(database, topic, len(story()), worker)
    until_projected(database, topic)
    assert worker.stop() == 0, worker.output()
    return database


def shown(database: str, table: str) -> list[dict[str, Any]]:
    """The rows of a view as ``fold --json`` shows them."""
    with psycopg.connect(database, row_factory=dict_row) as link:
        found = link.execute(f"select * from turnledger.{table} where session_id = %s", (SESSION,)).fetchall()  # type: ignore[arg-type]
    for row in found:
        if row["occurred_at"] is not None:
            row["occurred_at"] = utc_text(instant(row["occurred_at"].isoformat()) or 0)
        if isinstance(row.get("data"), bytes):
            row["data"] = b64encode(row["data"]).decode()
    return sorted(found, key=lambda row: (row["occurred_at"], row.get("item_index", 0)))


def test_entities_through_the_worker(written: str, tmp_path: Any) -> None:
    """One worker and one database for all that is looked at: each table beside values written by hand, then beside the pure fold."""
    items = shown(written, "model_items")
    assert [(row["item_type"], row["item_index"], row["call_id"], row["turn_key"]) for row in items] == [
        ("request", 1, None, "t"),
        ("reasoning", 1, None, "t"),
        ("response", 2, None, "t"),
        ("tool_call", 3, "u", "t"),
        ("tool_response", 2, "u", "t"),
        ("response", 2, None, "t"),
        ("response", 3, None, "t"),
    ]
    assert [(row["content"], row["arguments"]) for row in items] == [
        ("hello", None),
        ("hm", None),
        ("I look", None),
        (None, {"path": "/a"}),
        ("a line", None),
        ("done", None),
        ([{"type": "text", "text": "bye"}], None),
    ]
    assert (items[0]["content_sha256"], items[6]["receipt_key"]) == (sha256(b"hello").hexdigest(), "r/1")

    (response,) = shown(written, "tool_responses")
    assert {name: response[name] for name in ("call_id", "tool_call_id", "model_call_id", "context_tokens", "turn_key", "seq")} == {
        "call_id": "u", "tool_call_id": "u", "model_call_id": "c2", "context_tokens": 70, "turn_key": "t", "seq": 5,
    }  # fmt: skip

    (body,) = shown(written, "event_bodies")
    names = (
        "seq",
        "part",
        "parts",
        "parts_present",
        "complete",
        "stored_bytes",
        "original_bytes",
        "truncated",
        "verified",
        "data",
    )
    assert tuple(body[name] for name in names) == (10, 0, 2, 2, True, 11, 11, False, True, "aGVsbG8gd29ybGQ=")

    (request,) = shown(written, "net_events")
    assert (request["policy_rule"], request["request_headers"]) == ("r", {"accept": "*/*"})
    for table in ("security_decisions", "security_asks"):
        (row,) = shown(written, table)
        assert (row["rule_id"], row["rule"], row["event"], row["effective"]) == ("7", {"a": 1}, [2], "block")

    lines = tmp_path / "events.ndjson"
    lines.write_bytes(b"".join(record.value + b"\n" for record in story()))
    done = commands.run("fold", str(lines), "--json", environment={})
    assert done.returncode == 0, done.stderr
    folded = json.loads(done.stdout)
    for table in (
        "model_items",
        "tool_responses",
        "event_bodies",
        "net_events",
        "security_decisions",
        "security_asks",
    ):
        there = folded[table]
        # A view has the harness ledger's own names beside the contract's.
        here = [{name: row[name] for name in there[0]} for row in shown(written, table)]
        assert len(here) == len(there), table
        for row in there:
            assert row in here, table

    rolled = commands.run("rollup", "--once", environment={"TURNLEDGER_DATABASE_URL": written})
    assert rolled.returncode == 0, rolled.stderr
    proven = commands.run("verify", environment={"TURNLEDGER_DATABASE_URL": written})
    assert proven.returncode == 0, proven.stdout
