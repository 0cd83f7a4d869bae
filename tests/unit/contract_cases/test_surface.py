"""Contract 17: the keys of the object, the order of its lists, what its digest covers."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.stack.commands import COMMAND
from tests.unit.contract_cases.cases import (
    Event,
    end,
    ev,
    fold,
    fold_text,
    mark,
    named,
    order,
    start,
    user,
)

BUCKETS = {
    *("input_uncached", "cache_read", "cache_write_5m", "cache_write_1h", "cache_write_other"),
    *("output", "reasoning", "total_input"),
}
SUM = {f"{name}_tokens" for name in BUCKETS} | {"usage_reported", "usage_total"}
PLACE = {"tenant", "session_id", "producer", "epoch", "stream", "seq", "receipt_key"}

SESSION = SUM | {
    *(
        "tenant",
        "session_id",
        "name",
        "agent",
        "mode",
        "status",
        "kind",
        "created_at",
        "last_activity_at",
        "stopped_at",
    ),
    *(
        "models",
        "message_count",
        "turn_count",
        "total_requests",
        "allowed_requests",
        "denied_requests",
        "error_requests",
    ),
    *(
        "model_call_count",
        "failed_model_calls",
        "cost_micro_usd",
        "unpriced_calls",
        "total_tool_calls",
        "tool_errors",
    ),
    *(
        "total_file_events",
        "exec_count",
        "audit_event_count",
        "guard_blocks",
        "guard_coercions",
        "open_gaps",
        "conflicts",
    ),
    *("dead_letters", "grade", "detail", "inherited_usage"),
}
AI = SUM | {
    *("tenant", "session_id", "provider", "model", "kind", "call_count", "failed_count", "cost_micro_usd"),
    *("unpriced_calls", "total_duration_ms"),
}
TOOL = {
    *(
        "tenant",
        "session_id",
        "tool_name",
        "origin",
        "kind",
        "call_count",
        "error_count",
        "denied_count",
        "total_bytes",
    ),
    "total_duration_ms",
}
MCP = (TOOL - {"origin"}) | {"server_name"}
HOUR = SUM | {"tenant", "hour", "provider", "model", "calls", "cost_micro_usd", "unpriced_calls", "sessions"}

LISTS = {
    *(
        "conflicts",
        "dead_letters",
        "gaps",
        "turns",
        "findings",
        "sessions",
        "ai_usage",
        "tool_usage",
        "mcp_usage",
    ),
    *(
        "usage_hourly",
        "model_calls",
        "model_items",
        "tool_calls",
        "tool_responses",
        "net_events",
        "dns_events",
    ),
    *(
        "fs_events",
        "exec_events",
        "audit_events",
        "credential_events",
        "security_rule_events",
        "security_decisions",
    ),
    *("security_asks", "event_bodies"),
}


def rich(session_id: str = "s", tenant: str = "default") -> list[Event]:
    """A bit of everything, in two streams; every check but those about delivery may move."""
    usage = {"input": 10, "output": 5, "cache_read": 0}
    served = {"tool_name": "srv__x", "server_name": "srv", "call_tool_origin": "mcp"}
    call = {
        "provider": "anthropic",
        "model": "claude-opus-4-5",
        "message_id": f"{tenant} {session_id}",
        "usage": usage,
    }
    events = [
        ev(0, "session.started", {"name": "demo"}, at="00"),
        start(1, "a", at="01"),
        ev(2, "model_call.completed", call, model_call_id="1", at="02"),
        ev(3, "tool_call.requested", served, tool_call_id="t1", at="03"),
        ev(4, "tool_call.completed", {"status": "ok"}, tool_call_id="t1", at="04"),
        named(5, "g", at="05"),
        end(7, "a", at="06"),
        mark(0, "n", stream="bus", at="03"),
        mark(1, "m", stream="bus", at="09"),
        ev(2, "fs.changed", {"action": "read", "path": "/x"}, stream="bus"),
        ev(None, "dns.queried", {"qname": "q", "qtype": "A"}, receipt_key="r1", stream="otlp", at="02"),
        ev(8, "novel.type", at="07"),
        user(9, turn_id="b", at="08"),
    ]
    return [{**event, "session_id": session_id, "tenant": tenant} for event in events]


def test_the_object_has_these_keys() -> None:
    found = fold(*rich())
    assert found.keys() == {*LISTS, "records", "digest"}
    assert found["records"].keys() == {"read", "accepted", "duplicates", "conflicts", "dead"}
    assert len(found["digest"]) == 64


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("sessions", SESSION),
        ("ai_usage", AI),
        ("tool_usage", TOOL),
        ("mcp_usage", MCP),
        ("usage_hourly", HOUR),
    ],
)
def test_a_rollup_has_these_columns(name: str, keys: set[str]) -> None:
    (row,) = fold(*rich())[name]
    assert row.keys() == keys


def test_a_finding_has_these_keys_and_counts_its_rows() -> None:
    for finding in fold(*rich())["findings"]:
        assert finding.keys() == {"tenant", "session_id", "check", "severity", "count", "rows"}
        assert finding["severity"] in ("error", "warning", "info")
        if finding["check"] not in (
            "unknown_event_type",
            "newer_schema_version",
        ):  # those list types and versions
            assert finding["count"] == len(finding["rows"])


def test_point_rows_say_where_they_stand() -> None:
    found = fold(*rich())
    for name in ("net_events", "dns_events", "fs_events"):
        assert all(row.keys() >= PLACE for row in found[name])


def test_a_usage_object_names_its_buckets_without_a_suffix() -> None:
    (turn, _) = fold(*rich())["turns"]
    assert turn["usage"].keys() == BUCKETS | {"reported", "total"}


def test_every_list_is_sorted_by_tenant_then_session_by_bytes() -> None:
    found = fold(*rich("b"), *rich("a", "t"), *rich("é"), *rich("Z"))
    expected = [("default", "Z"), ("default", "b"), ("default", "é"), ("t", "a")]
    for name in (
        "turns",
        "model_calls",
        "tool_calls",
        "net_events",
        "sessions",
        "ai_usage",
        "mcp_usage",
        "gaps",
        "findings",
    ):
        seen = [(row["tenant"], row["session_id"]) for row in found[name]]
        assert list(dict.fromkeys(seen)) == expected, name
        assert seen == sorted(seen, key=expected.index), name


def test_point_events_stand_in_the_order_of_events() -> None:
    assert order(fold(*rich()[::-1])) == "nm"


def test_rollups_stand_in_the_order_of_their_keys_null_first() -> None:
    calls = [
        ev(seq, "model_call.completed", {"provider": provider, "model": model, "message_id": str(seq)})
        for seq, (provider, model) in enumerate(
            [("openai", "b"), ("openai", "B"), ("anthropic", "z"), (None, None)]
        )
    ]
    found = fold(*calls)
    assert [(row["provider"], row["model"]) for row in found["ai_usage"]] == [
        ("anthropic", "z"),
        ("openai", "B"),
        ("openai", "b"),
        ("unknown", "unknown"),
    ]


def test_a_null_hour_comes_first() -> None:
    untimed = ev(0, "model_call.completed", {"provider": "openai", "model": "b", "message_id": "1"})
    timed = ev(
        0,
        "model_call.completed",
        {"provider": "openai", "model": "b", "message_id": "2"},
        stream="a",
        at="01",
    )
    hours = [row["hour"] for row in fold(timed, untimed)["usage_hourly"]]
    assert hours == [None, "2026-05-01T12:00:00.000000Z"]


def test_findings_stand_in_the_order_of_their_checks() -> None:
    for session in ("s", "t"):
        names = [row["check"] for row in fold(*rich(session), ev(3, "x", session_id=session))["findings"]]
        assert names == sorted(names)
        assert len(set(names)) == len(names)


def test_any_order_and_duplication_give_one_digest_and_one_object() -> None:
    events = rich() + rich("t") + rich("s", "u")
    whole = fold(*events)
    for seed in range(8):
        chance = random.Random(seed)
        arrival = chance.sample(events, len(events))
        arrival += chance.choices(events, k=seed)
        chance.shuffle(arrival)
        found = fold(*arrival)
        assert found["digest"] == whole["digest"]
        assert {**found, "records": None} == {**whole, "records": None}


def test_dead_letters_leave_the_digest_alone() -> None:
    dead = [b"nothing", b"[]", b'{"session_id":"s","seq":"x","type":"y"}']
    one, other = fold(*rich()), fold(*dead, *rich())
    assert one["digest"] == other["digest"]
    assert other["sessions"][0]["dead_letters"] == 1
    assert sorted(row["count"] for row in other["findings"] if row["check"] == "dead_letter") == [1, 2]


def test_blank_lines_move_positions_and_not_the_digest() -> None:
    first, second = b'{"session_id":"s","seq":0,"type":"x"}\n', b'{"session_id":"s","seq":0,"type":"y"}\n'
    one, other = fold_text(first, second), fold_text(b"\n \n", first, b"\n", second)
    assert one["digest"] == other["digest"]
    assert [row["first_position"] for row in other["conflicts"]] == [5]


def test_how_often_a_conflict_came_leaves_the_digest_alone_and_that_it_came_does_not() -> None:
    lost = {**rich()[5], "payload": {"guard": "other", "outcome": "passed"}}
    third = {**rich()[5], "payload": {"guard": "third", "outcome": "passed"}}
    none, one, twice, two = (fold(*rich(), *more) for more in ((), (lost,), (lost, lost), (lost, third)))
    assert one["digest"] == twice["digest"]
    assert len({found["digest"] for found in (none, one, two)}) == 3
    assert fold(*rich(), third, lost, third)["digest"] == two["digest"]


def test_the_winner_of_a_conflict_is_in_the_digest() -> None:
    lost = {**rich()[5], "payload": {"guard": "other", "outcome": "passed"}}
    assert fold(*rich(), lost)["digest"] != fold(lost, *rich())["digest"]


def test_a_losing_event_gives_the_fold_nothing() -> None:
    lost = ev(1, "turn.started", turn_id="z", tool_call_id="t1")
    found = fold(*rich(), lost)
    assert [turn["turn_key"] for turn in found["turns"]] == ["a", "b"]


def test_a_turns_digest_knows_no_conflict_and_no_other_session() -> None:
    lost = {**rich()[5], "payload": {"guard": "other", "outcome": "passed"}}
    alone, beside = fold(*rich()), fold(*rich(), lost, *rich("t"))
    assert beside["turns"][0]["grade"] == "disputed"
    assert [turn["digest"] for turn in beside["turns"][:2]] == [turn["digest"] for turn in alone["turns"]]


def test_a_turns_digest_moves_with_its_content() -> None:
    changed = [
        {**event, "payload": {**event.get("payload", {}), "guard": "h"}}
        if event["type"] == "guard.evaluated"
        else event
        for event in rich()
    ]
    one, other = fold(*rich())["turns"], fold(*changed)["turns"]
    assert one[0]["digest"] != other[0]["digest"]
    assert one[1]["digest"] == other[1]["digest"]


def test_the_pure_fold_says_revision_1() -> None:
    assert {turn["revision"] for turn in fold(*rich())["turns"]} == {1}


def test_a_turn_has_only_what_was_told() -> None:
    (turn,) = fold(ev(0, "novel", turn_id="a"))["turns"]
    assert turn.keys() == {
        *(
            "schema_version",
            "tenant",
            "session_id",
            "turn_key",
            "turn_id",
            "kind",
            "revision",
            "digest",
            "status",
        ),
        *(
            "assigned_by",
            "stop",
            "model_calls",
            "round_trips",
            "tool_calls",
            "usage",
            "counts",
            "seq_spans",
            "gaps",
            "grade",
        ),
    }


def test_input_that_is_closed_cannot_be_read() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&-', "sh", *COMMAND, "fold", "-", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("turnledger: cannot read - (")


def test_dead_letters_are_no_failure_and_an_end_without_newline_joins_no_next_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b'{"session_id":"s","seq":0,"type":"x"}')
    two.write_bytes(b'{"session_id":"s","seq":1,"type":"x"}\n\n\nbad')
    done = subprocess.run([*COMMAND, "fold", str(one), str(two), "--json"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert found["records"] == {"read": 3, "accepted": 2, "duplicates": 0, "conflicts": 0, "dead": 1}
    assert [row["position"] for row in found["dead_letters"]] == [5]


def test_unknown_types_are_listed_once_each_and_counted() -> None:
    found = fold(ev(0, "novel.b"), ev(1, "novel.a"), ev(2, "novel.b", turn_id="a"), start(3, "a"))
    (finding,) = (row for row in found["findings"] if row["check"] == "unknown_event_type")
    assert (finding["count"], finding["rows"]) == (3, [{"type": "novel.a"}, {"type": "novel.b"}])
