"""Worked cases of contract 16 whose answer lies in owners, prices and sums: records in, the object of contract 17 out."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from turnledger.fold.document import Document, document
from turnledger.pricing import Price

Event = dict[str, Any]


def two_a_token(*given: Any, **named: Any) -> Price:
    """A price list with one price: 2 µ$ for an input token of a model that it knows."""
    _, model, usage = given[:3]
    if all(usage[name] is None for name in ("input_uncached", "output")):
        return Price(None, None, None, None)
    if model == "unheard-of":
        return Price(None, None, None, None, unpriced=True)
    return Price(2 * (usage["input_uncached"] or 0), "exact", "p/m", 1)


def four_a_token(*given: Any, **named: Any) -> Price:
    """The next catalogue."""
    first = two_a_token(*given, **named)
    if first.cost_micro_usd is None:
        return first
    return Price(2 * first.cost_micro_usd, "exact", "p/m", 2)


def told(events: list[Event], price: Any = two_a_token) -> Document:
    return document([json.dumps(event).encode() for event in events], price)


class Session:
    """Events of one session, numbered from 0, a second apart."""

    def __init__(self, session_id: str, **fields: Any) -> None:
        self.session_id, self.fields = session_id, fields
        self.events: list[Event] = []

    def add(self, type_: str, payload: Event | None = None, **fields: Any) -> Session:
        seq = len(self.events)
        event = {
            "session_id": self.session_id,
            "seq": seq,
            "type": type_,
            "payload": payload or {},
            "turn_id": "t",
        }
        self.events.append({**event, "occurred_at": f"2026-05-01T10:00:{seq:02d}Z", **self.fields, **fields})
        return self

    def call(self, tokens: int, message: str | None = None, *, model: str = "m", **fields: Any) -> Session:
        payload: Event = {
            "provider": "anthropic",
            "model": model,
            "usage": {"input": tokens, "output": 0, "cache_read": 0},
        }
        if message is not None:
            payload["message_id"] = message
        return self.add("model_call.completed", payload, **fields)

    def forked_from(self, parent: str, **payload: Any) -> Session:
        return self.add("session.forked", {"parent_session_id": parent, **payload})


def by_session(found: Document, column: str) -> dict[str, Any]:
    return {row["session_id"]: row[column] for row in found["sessions"]}


def c5() -> list[Session]:
    parent = Session("p").call(10, "m1").call(20, "m2").call(30, "m3")
    fork = Session("f").forked_from("p").call(10, "m1").call(20, "m2").call(30, "m3").call(5, "m4")
    resumed = [
        Session(name).forked_from(before).call(10, "m1").call(20, "m2").call(30, "m3").call(5, "m4")
        for name, before in (("r1", "f"), ("r2", "r1"))
    ]
    return [parent, fork, *resumed]


def test_c5_the_fleet_is_65_the_fork_its_own_5_with_60_inherited() -> None:
    found = told([event for session in c5() for event in session.events])
    assert by_session(found, "input_uncached_tokens") == {"p": 60, "f": 5, "r1": None, "r2": None}
    inherited = by_session(found, "inherited_usage")
    assert inherited["p"] is None
    assert inherited["f"]["input_uncached"] == 60
    assert (inherited["f"]["reported"], inherited["f"]["total"]) == (3, 3)
    assert by_session(found, "model_call_count") == {"p": 3, "f": 1, "r1": 0, "r2": 0}
    assert by_session(found, "cost_micro_usd") == {"p": 120, "f": 10, "r1": None, "r2": None}
    assert [
        (row["input_uncached_tokens"], row["calls"], row["sessions"]) for row in found["usage_hourly"]
    ] == [(65, 4, 2)]
    assert sum(row["input_uncached_tokens"] or 0 for row in found["ai_usage"]) == 65


def test_c5_the_turn_shows_its_calls_and_sums_its_own() -> None:
    found = told([event for session in c5() for event in session.events])
    turn = next(turn for turn in found["turns"] if turn["session_id"] == "f")
    assert [
        (call["message_id"], call["inherited"], call["cost_micro_usd"]) for call in turn["model_calls"]
    ] == [
        ("m1", True, 20),
        ("m2", True, 40),
        ("m3", True, 60),
        ("m4", False, 10),
    ]
    assert (turn["usage"]["input_uncached"], turn["usage"]["reported"], turn["usage"]["total"]) == (5, 1, 1)
    assert turn["inherited_usage"]["input_uncached"] == 60
    assert turn["cost_micro_usd"] == 10
    owners = {
        row["message_id"]: row["owner_session_id"]
        for row in found["model_calls"]
        if row["session_id"] == "r2"
    }
    assert owners == {"m1": "p", "m2": "p", "m3": "p", "m4": "f"}


def test_c5_ownership_moves_no_digest_of_a_turn() -> None:
    alone = told(c5()[1].events)["turns"][0]
    among = next(t for t in told([e for s in c5() for e in s.events])["turns"] if t["session_id"] == "f")
    assert among["digest"] == alone["digest"]
    assert among["usage"] != alone["usage"]


def test_c5_the_order_of_sessions_changes_nothing() -> None:
    digests = {
        told([e for session in order for e in session.events])["digest"] for order in permutations(c5())
    }
    assert len(digests) == 1


def test_c5b_a_sub_agent_that_counts_from_1_like_its_parent_is_merged_with_nothing() -> None:
    parent = Session("p").call(10, model_call_id="1").call(20, model_call_id="2")
    child = Session("sub", parent_session_id="p").call(3, model_call_id="1").call(4, model_call_id="2")
    found = told(parent.events + child.events)
    assert by_session(found, "input_uncached_tokens") == {"p": 30, "sub": 7}
    assert [row["inherited"] for row in found["model_calls"]] == [False] * 4


def test_a_fork_that_says_where_it_was_cut_inherits_by_number_what_began_before() -> None:
    parent = Session("p").call(10, model_call_id="1").call(20, model_call_id="2")
    fork = Session("f").forked_from("p", at_seq=0).call(10, model_call_id="1").call(7, model_call_id="2")
    found = told(parent.events + fork.events)
    assert by_session(found, "input_uncached_tokens") == {"p": 30, "f": 7}


def test_c10_what_a_call_costs_and_what_an_unknown_model_does_not() -> None:
    events = Session("s").call(1000, "m1").call(500, "m2", model="unheard-of").events
    found = told(events)
    assert [
        (row["cost_micro_usd"], row["unpriced"], row["catalog_version"]) for row in found["model_calls"]
    ] == [
        (2000, False, 1),
        (None, True, None),
    ]
    (session,) = found["sessions"]
    assert (session["cost_micro_usd"], session["unpriced_calls"]) == (2000, 1)
    assert [(row["model"], row["cost_micro_usd"], row["unpriced_calls"]) for row in found["ai_usage"]] == [
        ("m", 2000, 0),
        ("unheard-of", None, 1),
    ]
    (unpriced,) = [row for row in found["findings"] if row["check"] == "unpriced_model"]
    assert unpriced["rows"] == [{"provider": "anthropic", "model": "unheard-of", "calls": 1}]


def test_c10_another_catalogue_is_another_cost_and_the_same_digest() -> None:
    events = Session("s").call(1000, "m1").call(500, "m2", model="unheard-of").events
    first, second = told(events), told(events, four_a_token)
    assert (first["sessions"][0]["cost_micro_usd"], second["sessions"][0]["cost_micro_usd"]) == (2000, 4000)
    assert first["digest"] == second["digest"]


def test_c15_each_decision_is_counted_by_its_name_and_redirected_in_the_total_alone() -> None:
    session = Session("s")
    for decision in ("allowed", "denied", "error"):
        session.add("net.requested", {"domain": "example.org", "port": 443, "decision": decision})
    names = ("total_requests", "allowed_requests", "denied_requests", "error_requests")
    (row,) = told(session.events)["sessions"]
    assert [row[name] for name in names] == [3, 1, 1, 1]
    session.add("net.requested", {"domain": "example.org", "port": 80, "decision": "redirected"})
    (row,) = told(session.events)["sessions"]
    assert [row[name] for name in names] == [4, 1, 1, 1]


def test_c16_a_proxy_entry_and_its_transport_are_one_tool_call() -> None:
    session = Session("s").add("turn.started")
    session.add("tool_call.requested", {"tool_name": "bash", "call_tool_origin": "native"}, tool_call_id="a")
    session.add("tool_call.completed", {"status": "ok", "duration_ms": 5}, tool_call_id="a")
    session.add(
        "tool_call.requested",
        {"tool_name": "srv__x", "call_tool_origin": "mcp", "server_name": "srv"},
        tool_call_id="b",
    )
    for method in ("tools/list", "tools/call"):
        name = {"tool_name": "x"} if method == "tools/call" else {}
        for direction in ("request", "response"):
            payload = {
                "method": method,
                "direction": direction,
                "server_name": "srv",
                "request_id": method,
                **name,
            }
            session.add("mcp.observed", payload)
    session.add(
        "tool_call.completed", {"status": "ok", "bytes_sent": 2, "bytes_received": 3}, tool_call_id="b"
    )
    session.add("turn.completed")
    found = told(session.events)
    assert found["sessions"][0]["total_tool_calls"] == 2
    assert [(row["tool_name"], row["origin"], row["call_count"]) for row in found["tool_usage"]] == [
        ("bash", "native", 1),
        ("srv__x", "mcp", 1),
    ]
    (mcp,) = found["mcp_usage"]
    assert (mcp["server_name"], mcp["tool_name"], mcp["call_count"], mcp["total_bytes"]) == ("srv", "x", 1, 5)


def test_c17_null_is_not_zero_and_the_sum_says_how_many_reported() -> None:
    session = Session("s").add("turn.started")
    session.add(
        "model_call.completed",
        {"provider": "anthropic", "model": "m", "message_id": "1", "usage": {"input": 10, "output": 20}},
    )
    session.add("model_call.completed", {"provider": "anthropic", "model": "m", "message_id": "2"})
    session.add("turn.completed")
    found = told(session.events)
    (row,) = found["sessions"]
    assert (row["input_uncached_tokens"], row["output_tokens"]) == (10, 20)
    assert (row["model_call_count"], row["usage_reported"], row["usage_total"]) == (2, 1, 2)
    assert row["cache_read_tokens"] is None
    assert row["grade"] == "partial"
    (usage,) = found["ai_usage"]
    assert (usage["call_count"], usage["usage_reported"], usage["usage_total"]) == (2, 1, 2)


def test_c18_an_id_that_a_provider_uses_again_is_two_calls_one_without_result() -> None:
    session = Session("s").add("turn.started")
    for exchange in ("1", "2"):
        session.add(
            "tool_call.requested",
            {"tool_name": "read_file"},
            tool_call_id="gemini_read_file_0",
            model_call_id=exchange,
        )
    session.add("tool_call.completed", {"status": "ok"}, tool_call_id="gemini_read_file_0", model_call_id="1")
    session.add("turn.completed")
    found = told(session.events)
    assert sorted(row["pairing"] for row in found["tool_calls"]) == ["missing_result", "paired"]
    assert [(row["call_count"], row["error_count"]) for row in found["tool_usage"]] == [(2, 0)]
    assert found["sessions"][0]["total_tool_calls"] == 2
    assert found["sessions"][0]["grade"] == "partial"


def test_c19_two_rate_limits_and_a_success() -> None:
    session = Session("s").add("turn.started")
    for number in ("1", "2"):
        session.add(
            "model_call.failed",
            {"provider": "anthropic", "model": "m", "error_class": "rate_limit", "status_code": 429},
            model_call_id=number,
        )
    session.add(
        "model_call.completed",
        {
            "provider": "anthropic",
            "model": "m",
            "usage": {"input": 20, "output": 5, "cache_read": 0},
            "status_code": 200,
        },
        model_call_id="3",
    )
    session.add("turn.completed")
    found = told(session.events)
    (row,) = found["sessions"]
    assert (row["model_call_count"], row["failed_model_calls"]) == (3, 2)
    assert (
        row["input_uncached_tokens"],
        row["output_tokens"],
        row["usage_reported"],
        row["usage_total"],
    ) == (20, 5, 1, 1)
    assert (row["cost_micro_usd"], row["unpriced_calls"], row["grade"]) == (40, 0, "complete")
    assert [call["retries"] for call in found["model_calls"]] == [0, 1, 2]
    (usage,) = found["ai_usage"]
    assert (usage["call_count"], usage["failed_count"], usage["output_tokens"]) == (3, 2, 5)


@pytest.mark.parametrize("kind", ["eval", "import"])
def test_hours_hold_live_and_imported_work_only(kind: str) -> None:
    found = told(Session("s", kind=kind, run_id="r").call(10, "m1").events)
    assert by_session(found, "kind") == {"s": kind}
    assert by_session(found, "input_uncached_tokens") == {"s": 10}
    assert [row["input_uncached_tokens"] for row in found["usage_hourly"]] == ([] if kind == "eval" else [10])


def test_a_mixed_session_leaves_its_eval_turns_out_of_its_sums() -> None:
    session = Session("s").call(10, "m1")
    session.call(500, "m2", turn_id="e", kind="eval", run_id="r")
    found = told(session.events)
    assert by_session(found, "kind") == {"s": "live"}
    assert by_session(found, "input_uncached_tokens") == {"s": 10}
    assert by_session(found, "turn_count") == {"s": 1}
    assert [row["input_uncached_tokens"] for row in found["ai_usage"]] == [10]
    assert len(found["turns"]) == 2
