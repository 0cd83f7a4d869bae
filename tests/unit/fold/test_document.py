"""The object of contract 17: its lists, their order, what its digest covers; and the lines it is made from."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest

from turnledger.fold import columns
from turnledger.fold.document import Document, digest, document, lines
from turnledger.pricing import packaged, price_call

PRICE = partial(price_call, packaged())
LISTS = {
    *(
        "conflicts",
        "dead_letters",
        "gaps",
        "turns",
        "model_calls",
        "model_items",
        "tool_calls",
        "tool_responses",
    ),
    *("net_events", "dns_events", "fs_events", "exec_events", "audit_events", "credential_events"),
    *("security_rule_events", "security_decisions", "security_asks", "event_bodies"),
    *("sessions", "ai_usage", "tool_usage", "mcp_usage", "usage_hourly", "findings"),
}


def event(session_id: str, seq: int, type_: str, payload: dict[str, Any] | None = None, **more: Any) -> bytes:
    record = {"session_id": session_id, "seq": seq, "type": type_, "payload": payload or {}, **more}
    return json.dumps(record).encode()


def call(session_id: str, seq: int, message_id: str, tokens: int, **more: Any) -> bytes:
    payload = {
        "provider": "anthropic",
        "model": "claude-opus-4-5",
        "message_id": message_id,
        "usage": {"input": tokens, "output": 0, "cache_read": 0},
    }
    return event(session_id, seq, "model_call.completed", payload, turn_id="t", **more)


def told(*records: bytes) -> Document:
    return document(records, PRICE)


SOME = [
    event("b", 0, "session.started", occurred_at="2026-05-01T12:00:00+02:00"),
    call("b", 1, "m1", 10, occurred_at="2026-05-01T10:00:01.5Z"),
    event(
        "b", 3, "net.requested", {"domain": "example.org", "port": 443, "decision": "allowed"}, turn_id="t"
    ),
    event("é", 0, "tool_call.requested", {"tool_name": "bash"}, turn_id="t", tool_call_id="x"),
    event("a", 0, "session.started"),
    call("a", 1, "m2", 20, kind="import"),
    event("a", 0, "session.started", tenant="other"),
]


def test_every_list_is_there_also_of_nothing() -> None:
    found = told()
    assert found.keys() == {*LISTS, "records", "digest"}
    assert all(found[name] == [] for name in LISTS)
    assert found["records"] == {"read": 0, "accepted": 0, "duplicates": 0, "conflicts": 0, "dead": 0}


def test_sessions_are_sorted_by_tenant_then_id_by_their_bytes() -> None:
    assert [(row["tenant"], row["session_id"]) for row in told(*SOME)["sessions"]] == [
        ("default", "a"),
        ("default", "b"),
        ("default", "é"),
        ("other", "a"),
    ]


def test_instants_are_shown_in_utc_with_six_digits() -> None:
    found = told(*SOME)
    rows = {row["session_id"]: row for row in found["sessions"] if row["tenant"] == "default"}
    assert rows["b"]["created_at"] == "2026-05-01T10:00:00.000000Z"
    assert rows["b"]["last_activity_at"] == "2026-05-01T10:00:01.500000Z"
    assert rows["a"]["created_at"] is None
    assert [row["hour"] for row in found["usage_hourly"]] == [None, "2026-05-01T10:00:00.000000Z"]


def test_no_column_of_the_machinery_is_shown() -> None:
    found = told(*SOME)
    for name in LISTS:
        for row in found[name]:
            assert not columns.HIDDEN & row.keys(), name


def test_point_events_say_where_they_stand() -> None:
    (row,) = told(*SOME)["net_events"]
    assert {
        name: row[name]
        for name in ("session_id", "producer", "epoch", "stream", "seq", "receipt_key", "domain")
    } == {
        "session_id": "b",
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "seq": 3,
        "receipt_key": None,
        "domain": "example.org",
    }


def test_calls_stand_in_the_order_of_events_not_of_arrival() -> None:
    records = [call("s", seq, f"m{seq}", seq) for seq in (5, 3, 4)]
    assert [row["message_id"] for row in told(*records)["model_calls"]] == ["m3", "m4", "m5"]


def test_a_duplicate_changes_the_counts_of_records_alone() -> None:
    once, twice = told(*SOME), told(*SOME, SOME[1])
    assert twice["records"] == {"read": 8, "accepted": 7, "duplicates": 1, "conflicts": 0, "dead": 0}
    assert {**twice, "records": None} == {**once, "records": None}


def test_a_conflict_keeps_the_first_and_has_one_receipt_for_each_losing_hash() -> None:
    first, second, third = (call("s", 1, "m", tokens) for tokens in (10, 11, 12))
    found = told(event("s", 0, "turn.started", turn_id="t"), first, second, third, second)
    assert found["records"] == {"read": 5, "accepted": 2, "duplicates": 0, "conflicts": 3, "dead": 0}
    assert [
        (row["count"], row["first_position"], row["last_position"])
        for row in sorted(found["conflicts"], key=_first)
    ] == [
        (2, 3, 5),
        (1, 4, 4),
    ]
    assert len({row["kept_sha256"] for row in found["conflicts"]}) == 1
    assert found["sessions"][0]["conflicts"] == 2
    assert found["sessions"][0]["grade"] == "disputed"
    assert [turn["grade"] for turn in found["turns"]] == ["disputed"]
    assert found["turns"][0]["usage"]["input_uncached"] == 10


def _first(row: dict[str, Any]) -> int:
    position: int = row["first_position"]
    return position


def test_a_conflict_disputes_its_own_turn_and_no_other() -> None:
    records = [call("s", 0, "m1", 1), call("s", 1, "m2", 2).replace(b'"t"', b'"u"')]
    found = told(*records, call("s", 0, "m1", 9))
    assert {turn["turn_key"]: turn["grade"] for turn in found["turns"]} == {"t": "disputed", "u": "partial"}


def test_a_turns_digest_knows_no_conflict() -> None:
    alone, disputed = told(call("s", 0, "m1", 1)), told(call("s", 0, "m1", 1), call("s", 0, "m1", 9))
    assert alone["turns"][0]["digest"] == disputed["turns"][0]["digest"]
    assert alone["digest"] != disputed["digest"]


def test_dead_letters_are_told_by_line_and_counted_where_their_session_can_be_read() -> None:
    found = told(
        event("s", 0, "x"), b"no json", b'{"session_id":"s","seq":"1","type":"x"}', b'{"session_id":"t"}'
    )
    assert [(row["position"], row["reason"], row["session_id"]) for row in found["dead_letters"]] == [
        (2, "json", None),
        (3, "wrong_type", "s"),
        (4, "missing_field", "t"),
    ]
    assert [(row["session_id"], row["dead_letters"]) for row in found["sessions"]] == [("s", 1)]
    assert [
        (row["session_id"], row["count"]) for row in found["findings"] if row["check"] == "dead_letter"
    ] == [
        (None, 1),
        ("s", 1),
        ("t", 1),
    ]


def test_dead_letters_are_outside_the_digest() -> None:
    assert (
        told(*SOME, b"no json", b'{"session_id":"a","seq":"1","type":"x"}')["digest"] == told(*SOME)["digest"]
    )


def test_how_often_and_where_a_conflict_was_seen_is_outside_the_digest() -> None:
    first, second = call("s", 1, "m", 10), call("s", 1, "m", 11)
    assert told(first, second)["digest"] == told(first, b"\t", second, second)["digest"]


def test_any_order_and_any_duplication_have_one_digest() -> None:
    whole = told(*SOME)
    for seed in range(10):
        mixed = [*SOME, *random.Random(seed).choices(SOME, k=5)]
        random.Random(seed).shuffle(mixed)
        assert told(*mixed)["digest"] == whole["digest"]


def test_another_event_has_another_digest() -> None:
    assert told(*SOME)["digest"] != told(*SOME[:-1])["digest"]


def test_cost_is_outside_the_digest_wherever_it_stands() -> None:
    found = told(*SOME)
    assert found["model_calls"][0]["cost_micro_usd"] is not None
    moved = json.loads(json.dumps(found))
    for row in (
        *moved["model_calls"],
        *moved["sessions"],
        *moved["ai_usage"],
        *moved["usage_hourly"],
        *moved["turns"],
    ):
        row["cost_micro_usd"] = 12345
    moved["turns"][0]["model_calls"][0].update(cost_fidelity="other", price_id="other")
    assert digest(moved) == found["digest"]
    moved["sessions"][0]["output_tokens"] = 12345
    assert digest(moved) != found["digest"]


def test_a_line_of_white_space_has_a_position_and_is_no_record() -> None:
    found = told(b"", b" \t\r", b"no json")
    assert found["records"]["read"] == 1
    assert [row["position"] for row in found["dead_letters"]] == [3]


def test_the_size_limit_is_that_of_the_caller() -> None:
    record = event("s", 0, "x", {"text": "x" * 100})
    found = document([record], PRICE, limit=100)
    assert [row["reason"] for row in found["dead_letters"]] == ["too_large"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_end_at_0x0a_whatever_the_chunks(size: int) -> None:
    content = b'{"a":1}\r\n\n\r\nx\ry\r\r\n\xe2\x80\xa8z\nlast'
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    assert list(lines(chunks)) == [b'{"a":1}', b"", b"", b"x\ry\r", b"\xe2\x80\xa8z", b"last"]


def test_an_ended_last_line_is_not_followed_by_another() -> None:
    assert list(lines([b"a\n"])) == [b"a"]
    assert list(lines([b"a\n", b"\n"])) == [b"a", b""]
    assert list(lines([])) == []
