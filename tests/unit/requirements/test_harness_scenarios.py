"""The scenarios of a VM sandbox's ledger that are a ledger's to decide and are not about counting, by their numbers, with the values of our contract.

Those about counting (1 to 18, 44) stand in ``test_harness_ledger``; whole ledgers in ``tests/unit/harness/test_capsem_rollups``. ``docs/doctor.md`` lists
all of them, and which are the harness's own.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest

from turnledger.contract.redact import Redactor
from turnledger.fold.document import document
from turnledger.pricing import Prices, Published, packaged

Event = dict[str, Any]
Document = dict[str, Any]
PRICE = Prices([Published(packaged(), None)])


def event(kind: str, *, payload: Event | None = None, **envelope: Any) -> Event:
    return {"session_id": "s", "type": kind, "payload": payload or {}, **envelope}


def told(*events: Event, redactor: Redactor | None = None) -> Document:
    """The fold of these events, numbered in the order given."""
    lines = [json.dumps({"seq": seq, **one}).encode() for seq, one in enumerate(events)]
    return document(lines, PRICE, redactor=redactor)


def exchange(turn: str, first: str, second: str, tool: str, *, trace: str | None = None) -> list[Event]:
    """One turn of tool use: a call that asks for a tool, its result, and the call that is given it."""
    place = {"turn_id": turn, **({} if trace is None else {"trace_id": trace})}
    usage = {"input": 1, "output": 1}

    def call(name: str, **more: Any) -> Event:
        said = {
            "provider": "anthropic",
            "model": "m",
            "message_id": f"msg-{turn}-{name}",
            "usage": usage,
            **more,
        }
        return event("model_call.completed", model_call_id=name, payload=said, **place)

    return [
        event("turn.started", **place),
        event("message.recorded", payload={"role": "user", "text": f"do {turn}"}, **place),
        call(first, thinking=f"how {turn}", stop_reason="tool_use"),
        event("tool_call.requested", model_call_id=first, tool_call_id=tool, payload={"tool_name": "ls", "arguments": {"turn": turn}}, **place),
        event("tool_call.completed", tool_call_id=tool, payload={"status": "ok", "preview": f"files of {turn}"}, **place),
        event("tool_results.submitted", model_call_id=second, payload={"tool_call_ids": [tool]}, **place),
        call(second, text=f"done {turn}", stop_reason="end_turn"),
        event("turn.completed", payload={"status": "completed"}, **place),
    ]  # fmt: skip


def session(found: Document) -> Event:
    (row,) = found["sessions"]
    return dict(row)


def test_s8_three_rules_that_match_one_event_are_three_matches_and_one_request() -> None:
    found = told(
        event("net.requested", event_id="aaaaaaaaaaaa", payload={"domain": "a.example", "decision": "allowed"}),
        *(event("security.rule_matched", payload={"for_event_id": "aaaaaaaaaaaa", "rule_id": rule}) for rule in "abc"),
    )  # fmt: skip
    assert (len(found["security_rule_events"]), session(found)["total_requests"]) == (3, 1)


def test_s14_history_that_is_sent_again_makes_no_second_call_and_the_first_consumer_stays() -> None:
    place = {"turn_id": "t"}
    asked = [
        event("tool_call.requested", tool_call_id=name, model_call_id="1", payload={"tool_name": "ls"}, **place) for name in ("k1", "k2")
    ]  # fmt: skip
    found = told(
        event("turn.started", **place),
        *asked,
        *(
            event("tool_call.completed", tool_call_id=name, payload={"status": "ok"}, **place)
            for name in ("k1", "k2")
        ),
        event("tool_results.submitted", model_call_id="2", payload={"tool_call_ids": ["k1"]}, **place),
        event("tool_results.submitted", model_call_id="3", payload={"tool_call_ids": ["k1", "k2"]}, **place),
        event("turn.completed", **place),
    )
    assert [(row["call_id"], row["consumed_by"]) for row in found["tool_calls"]] == [("k1", "2"), ("k2", "3")]
    # What was handed over is told as often as it was: the source kept the new result alone, and lost which request had it.
    assert [(row["call_id"], row["model_call_id"]) for row in found["tool_responses"]] == [
        ("k1", "2"),
        ("k1", "3"),
        ("k2", "3"),
    ]


@pytest.mark.parametrize(("second", "rows"), [("a", 1), ("b", 2)], ids=["the same trace", "another trace"])
def test_s15_an_item_stands_once_in_a_trace(second: str, rows: int) -> None:
    say = {"role": "user", "text": "go on"}
    found = told(
        event("message.recorded", trace_id="a", turn_id="t", payload=say),
        event("message.recorded", trace_id=second, turn_id="t", payload=say),
    )
    assert len(found["model_items"]) == rows


def test_s15_an_item_without_a_trace_is_known_again_too() -> None:
    """In SQL a null is never equal to another, so that the source's own index let it in twice."""
    say = {"role": "user", "text": "go on"}
    place = {"turn_id": "t", "model_call_id": "1"}
    found = told(
        event("message.recorded", payload=say, **place), event("message.recorded", payload=say, **place)
    )
    assert len(found["model_items"]) == 1


@pytest.mark.parametrize("poison", [0, 1, 2])
def test_s19_one_bad_record_of_three_is_refused_alone_wherever_it_stands(poison: int) -> None:
    lines = [json.dumps(event("note", seq=seq)).encode() for seq in range(3)]
    lines[poison] = b'{"session_id":"s","seq":"x","type":"note"}'
    found = document(lines, PRICE)
    assert found["records"] == {"read": 3, "accepted": 2, "duplicates": 0, "conflicts": 0, "dead": 1}
    assert [(row["position"], row["reason"]) for row in found["dead_letters"]] == [
        (poison + 1, "wrong_type")
    ]  # lines count from 1


def test_s19_nothing_but_bad_records_is_nothing_but_dead_letters() -> None:
    assert document([b"\xff", b"{", b"[]"], PRICE)["records"] == {
        "read": 3,
        "accepted": 0,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 3,
    }


def test_s22_rolled_up_twice_is_rolled_up_once() -> None:
    events = exchange("t", "1", "2", "k")
    assert told(*events) == told(*events)
    again = told(*events, *({"seq": seq, **one} for seq, one in enumerate(events)))
    assert (again["digest"], again["records"]["duplicates"]) == (told(*events)["digest"], len(events))


def test_s24_a_session_that_is_started_again_runs_and_has_no_end() -> None:
    row = session(
        told(
            event("session.started", occurred_at="2026-02-01T00:00:00Z"),
            event("session.ended", occurred_at="2026-02-01T00:01:00Z", payload={"status": "stopped"}),
            event("session.started", occurred_at="2026-02-01T00:02:00Z"),
        )
    )
    assert (row["status"], row["stopped_at"], row["created_at"]) == (
        "running",
        None,
        "2026-02-01T00:00:00.000000Z",
    )


PAIRS: list[list[Event]] = [
    [
        event("tool_call.requested", seq=0, turn_id="t", tool_call_id="k", payload={"tool_name": "ls"}),
        event("tool_call.completed", seq=1, turn_id="t", tool_call_id="k", payload={"status": "ok"}),
    ],
    [
        event("process.started", seq=0, payload={"exec_id": "1", "command": "ls"}),
        event("process.exited", seq=1, payload={"exec_id": "1", "exit_code": 0}),
    ],
    [
        event(
            "net.requested",
            seq=0,
            event_id="aaaaaaaaaaaa",
            payload={"domain": "a.example", "decision": "allowed"},
        ),
        event("security.rule_matched", seq=1, payload={"for_event_id": "aaaaaaaaaaaa", "rule_id": "r"}),
    ],
]


@pytest.mark.parametrize(
    "pair", PAIRS, ids=["a result before its request", "an exit before its start", "a rule before its event"]
)
def test_s25_what_arrives_the_wrong_way_round_means_the_same(pair: list[Event]) -> None:
    digests = {told(*order)["digest"] for order in itertools.permutations(pair)}
    assert len(digests) == 1


def test_s27_a_stream_that_was_cut_keeps_what_it_said_and_one_that_said_nothing_stays_unknown() -> None:
    found = told(
        event(
            "model_call.completed",
            model_call_id="1",
            payload={
                "provider": "anthropic",
                "model": "claude-sonnet-4-5",
                "message_id": "x",
                "usage": {"input": 20, "output": 2},
            },
        ),
        event("model_call.completed", model_call_id="2", payload={"provider": "openai", "model": "gpt-4o"}),
    )
    assert [
        (row["message_id"], row["stop_reason"], row["input_uncached_tokens"], row["output_tokens"])
        for row in found["model_calls"]
    ] == [
        ("x", None, 20, 2),
        (None, None, None, None),
    ]
    assert [row["check"] for row in found["findings"]] == ["null_tokens"]


def test_s28b_a_body_that_was_captured_short_says_its_whole_size() -> None:
    data = base64.b64encode(b"x" * 4096).decode()
    found = told(
        event("net.requested", event_id="aaaaaaaaaaaa", payload={"domain": "a.example", "decision": "allowed", "bytes_sent": 16_384}),
        event(
            "body.recorded",
            payload={
                "for_event_id": "aaaaaaaaaaaa", "source": "net", "direction": "request", "original_bytes": 16_384, "truncated": True, "sha256": "0" * 64,
                "data": data,
            },
        ),
    )  # fmt: skip
    (body,) = found["event_bodies"]
    assert (body["original_bytes"], body["truncated"], len(base64.b64decode(body["data"]))) == (
        16_384,
        True,
        4096,
    )


def test_s30_a_tool_that_is_only_declared_is_no_call() -> None:
    row = session(
        told(
            event("session.started", payload={"tools": ["ls", "cat"]}),
            event("session.tools_changed", payload={"tools": ["ls"]}),
            event(
                "model_call.started", model_call_id="1", payload={"provider": "anthropic", "tools_count": 2}
            ),
        )
    )
    assert (row["total_tool_calls"], row["model_call_count"]) == (0, 1)


def test_s33_an_id_that_is_used_again_later_belongs_to_the_later_turn() -> None:
    found = told(*exchange("a", "1", "2", "call_x"), *exchange("b", "3", "4", "call_x"))
    assert [(row["turn_key"], row["requested_by"], row["consumed_by"], row["pairing"]) for row in found["tool_calls"]] == [
        ("a", "1", "2", "paired"),
        ("b", "3", "4", "paired"),
    ]  # fmt: skip


def test_s34_traces_side_by_side_stay_apart_and_three_calls_of_one_response_share_their_turn() -> None:
    one, other = exchange("a", "1", "2", "x", trace="ta"), exchange("b", "3", "4", "x", trace="tb")
    more = [
        event(
            "tool_call.requested",
            turn_id="a",
            trace_id="ta",
            model_call_id="1",
            tool_call_id=name,
            payload={"tool_name": "ls"},
        )
        for name in ("y", "z")
    ]
    streams = [{**single, "stream": single["trace_id"]} for single in [*one[:4], *more, *one[4:], *other]]
    numbers: dict[str, int] = {}
    for single in streams:
        single["seq"] = numbers[single["stream"]] = numbers.get(single["stream"], -1) + 1
    found = told(*streams)
    assert sorted((row["turn_key"], row["call_id"]) for row in found["tool_calls"]) == [
        ("a", "x"),
        ("a", "y"),
        ("a", "z"),
        ("b", "x"),
    ]


def test_s35_two_turns_of_tool_use_are_four_calls_ten_items_two_tools_and_two_results() -> None:
    requests = [
        event("net.requested", turn_id=turn, payload={"domain": "a.example", "decision": "allowed"})
        for turn in "aabb"
    ]
    found = told(*exchange("a", "1", "2", "x"), *exchange("b", "3", "4", "y"), *requests)
    counts = {
        name: len(found[name])
        for name in ("model_calls", "model_items", "tool_calls", "tool_responses", "turns", "net_events")
    }
    assert counts == {
        "model_calls": 4,
        "model_items": 10,
        "tool_calls": 2,
        "tool_responses": 2,
        "turns": 2,
        "net_events": 4,
    }
    assert [(row["requested_by"], row["consumed_by"]) for row in found["tool_calls"]] == [
        ("1", "2"),
        ("3", "4"),
    ]
    assert [row["model_call_id"] for row in found["tool_responses"]] == ["2", "4"]


def test_s36_a_secret_is_a_reference_in_every_row_of_its_exchange_and_nowhere_itself() -> None:
    secret = "sk-ant-api03-" + "q" * 40
    found = told(
        event("net.requested", payload={"domain": "a.example", "decision": "allowed", "request_headers": {"authorization": f"Bearer "
        f"{secret}", "host": "a.example"}}),
        event("tool_call.requested", tool_call_id="k", payload={"tool_name": "curl", "arguments": {"header": secret}}),
        event("model_call.completed", model_call_id="1", payload={"provider": "anthropic", "text": f"use {secret}"}),
        redactor=Redactor(),
    )  # fmt: skip
    everything = json.dumps(found)
    assert secret not in everything and "q" * 40 not in everything
    (headers,) = [row["request_headers"] for row in found["net_events"]]
    assert headers["host"] == "a.example" and headers["authorization"].startswith("hash:")


def test_s37_a_rule_about_an_imported_file_keeps_the_reference_to_the_credential_that_it_saw() -> None:
    reference = "credential:blake3:" + "0" * 64
    found = told(
        event("fs.changed", event_id="aaaaaaaaaaaa", payload={"action": "import", "path": ".env"}),
        event("security.rule_matched", payload={"for_event_id": "aaaaaaaaaaaa", "rule_id": "r", "event": {"path": ".env", "credential_ref": reference}}),
        event("credential.used", payload={"source": ".env:KEY", "reference": reference, "outcome": "captured"}),
    )  # fmt: skip
    assert found["security_rule_events"][0]["event"]["credential_ref"] == reference
    assert found["credential_events"][0]["reference"] == reference


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        ({"status": "stopped", "exit_code": 0}, "stopped"),
        ({"status": "crashed", "exit_code": 137}, "crashed"),
        ({"exit_code": 0}, "stopped"),
    ],
)
def test_s41_a_session_ends_as_it_says(payload: Event, status: str) -> None:
    assert (
        session(told(event("session.started"), event("session.ended", payload=payload)))["status"] == status
    )


def test_s41_the_end_of_a_process_is_no_end_of_its_session() -> None:
    found = told(
        event("session.started"),
        event("process.started", payload={"exec_id": "1", "command": "agent"}),
        event("process.exited", payload={"exec_id": "1", "exit_code": 1}),
    )
    assert session(found)["status"] == "running"


def test_s42_a_session_whose_host_died_runs_until_somebody_says_that_it_is_lost() -> None:
    began = event("session.started", occurred_at="2026-02-01T00:00:00Z")
    assert session(told(began))["status"] == "running"
    closed = event("session.ended", provenance="derived", payload={"status": "lost"})
    assert session(told(began, closed))["status"] == "lost"
