"""Tool calls (contract 10): identity, pairing, origin, transport evidence, who asked and who consumed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fold.events import Story, checks
from turnledger.fold.model import Row
from turnledger.fold.tools import TOOL_TYPES, _by_id, _Pairing, bare_name, pair_tools


def pairings(story: Story) -> list[str]:
    fold = story.fold()
    return [row["pairing"] for turn in fold.turns for row in turn.tools] + [
        row["pairing"] for row in fold.tools
    ]


def ended(*events: dict[str, Any], status: str = "completed") -> Story:
    """A turn of these events that ended."""
    story = Story(turn="t")
    story("turn.started")
    for event in events:
        story(**event)
    story("turn.completed", status=status)
    return story


REQUEST: dict[str, Any] = {"type": "tool_call.requested", "tool": "x", "tool_name": "bash"}
START: dict[str, Any] = {"type": "tool_call.started", "tool": "x"}
OK: dict[str, Any] = {"type": "tool_call.completed", "tool": "x", "status": "ok"}
ERROR: dict[str, Any] = {"type": "tool_call.completed", "tool": "x", "status": "error", "error_message": "no"}
DENIED: dict[str, Any] = {"type": "tool_call.denied", "tool": "x", "by": "policy"}


@pytest.mark.parametrize(
    ("rule", "events", "expected"),
    [
        ("request and result", [REQUEST, OK], [("paired", "ok")]),
        ("a start counts as a request", [START, OK], [("paired", "ok")]),
        ("request, start and result are one", [REQUEST, START, OK], [("paired", "ok")]),
        ("an error is a result", [REQUEST, ERROR], [("paired", "error")]),
        ("the last result gives the status", [REQUEST, ERROR, OK], [("paired", "ok")]),
        ("a request alone", [REQUEST], [("missing_result", "requested")]),
        ("a result alone", [OK], [("orphan_result", "ok")]),
        ("denied", [REQUEST, DENIED], [("denied", "denied")]),
        ("denied beats a result", [REQUEST, OK, DENIED], [("denied", "denied")]),
        ("denied alone", [DENIED], [("denied", "denied")]),
        ("a result before its request pairs too", [OK, REQUEST], [("paired", "ok")]),
        ("two requests of one id and no call are one", [REQUEST, REQUEST, OK], [("paired", "ok")]),
    ],
)
def test_pairing_in_an_ended_turn(rule: str, events: list[Row], expected: list[tuple[str, str]]) -> None:
    turn = ended(*events).turn()
    assert [(row["pairing"], row["status"]) for row in turn.tools] == expected


def test_a_denial_says_who_denied_and_is_no_error() -> None:
    (row,) = ended(REQUEST, DENIED).turn().tools
    assert (row["denied_by"], row["error_message"]) == ("policy", None)


def test_an_open_turn_waits_and_an_abandoned_one_misses() -> None:
    story = Story(turn="t")
    story("turn.started")
    story(**REQUEST)
    assert pairings(story) == ["pending"]
    assert story.turn().record["stop"]["why"] == "tool_pending"
    story("turn.started", turn="u")
    assert pairings(story) == ["missing_result"]


def test_a_result_after_the_turns_end_is_late_and_the_first_of_several_decides() -> None:
    late = Story(turn="t")
    for event in ({"type": "turn.started"}, REQUEST, {"type": "turn.completed"}, OK):
        late(**event)
    assert pairings(late) == ["late_result"]
    both = Story(turn="t")
    for event in ({"type": "turn.started"}, REQUEST, ERROR, {"type": "turn.completed"}, OK):
        both(**event)
    turn = both.turn()
    assert [(row["pairing"], row["status"]) for row in turn.tools] == [("paired", "ok")]


def test_outside_turns_a_request_waits_while_the_session_runs() -> None:
    story = Story()
    story(**REQUEST)
    assert pairings(story) == ["pending"]
    story("session.ended", status="stopped")
    assert pairings(story) == ["missing_result"]


def test_outside_turns_ids_are_scoped_by_trace() -> None:
    story = Story()
    story(**REQUEST, trace="1")
    story(**REQUEST, trace="2")
    story(**OK, trace="1")
    story("session.ended", status="stopped")
    assert pairings(story) == ["paired", "missing_result"]


def test_one_id_in_two_turns_is_two_calls() -> None:
    story = Story()
    for turn in ("a", "b"):
        story("turn.started", turn=turn)
        story(**REQUEST, turn=turn)
        story("turn.completed", turn=turn)
    story(**OK, turn="a")
    assert pairings(story) == ["late_result", "missing_result"]


def test_a_result_that_names_its_call_answers_that_request_in_any_order() -> None:
    turn = ended(
        {**REQUEST, "call": "1"},
        {**REQUEST, "call": "2"},
        {**ERROR, "call": "1"},
        {**OK, "call": "2"},
    ).turn()
    assert [(row["requested_by"], row["status"]) for row in turn.tools] == [("1", "error"), ("2", "ok")]


def test_a_result_without_a_call_answers_the_latest_unanswered_request_before_it() -> None:
    turn = ended({**REQUEST, "call": "1"}, {**REQUEST, "call": "2"}, OK, ERROR).turn()
    assert [(row["requested_by"], row["status"]) for row in turn.tools] == [("1", "error"), ("2", "ok")]


def test_without_ids_each_request_is_its_own_and_starts_join_the_latest_unanswered() -> None:
    named = {"type": "tool_call.requested", "tool_name": "bash"}
    turn = ended(
        named,
        {"type": "tool_call.started"},
        {"type": "tool_call.completed", "status": "ok"},
        named,
        {"type": "tool_call.started", "tool_name": "other"},
    ).turn()
    assert [(row["tool_name"], row["pairing"]) for row in turn.tools] == [
        ("bash", "paired"),
        ("bash", "missing_result"),
        ("other", "missing_result"),
    ]


def test_fields_come_from_the_events_that_tell_them() -> None:
    (row,) = (
        ended(
            {**REQUEST, "call": "1", "call_index": 3, "call_tool_origin": "builtin", "trace": "tr"},
            {
                **OK,
                "duration_ms": 7,
                "bytes_sent": 1,
                "bytes_received": 2,
                "transport": "stdio",
                "request_id": 5,
            },
        )
        .turn()
        .tools
    )
    expected = {
        "call_id": "x",
        "tool_name": "bash",
        "origin": "builtin",
        "requested_by": "1",
        "call_index": 3,
        "duration_ms": 7,
        "bytes_sent": 1,
        "bytes_received": 2,
        "transport": "stdio",
        "request_id": "5",
        "trace_id": "tr",
    }
    assert {name: row[name] for name in expected} == expected


def test_an_unlisted_origin_is_unknown_and_a_finding() -> None:
    turn = ended({**REQUEST, "call_tool_origin": "elsewhere"}, OK).turn()
    assert turn.tools[0]["origin"] == "unknown"
    assert checks(turn) == ["wrong_type_in_payload"]


def test_the_first_submission_says_which_call_consumed_a_result() -> None:
    turn = ended(
        {**REQUEST, "call": "1"},
        OK,
        {"type": "tool_results.submitted", "call": "2", "tool_call_ids": ["x"]},
        {"type": "tool_results.submitted", "call": "3", "tool_call_ids": ["x", "ghost"]},
    ).turn()
    assert turn.tools[0]["consumed_by"] == "2"
    named = [
        finding["row"]["tool_call_id"]
        for finding in turn.findings
        if finding["check"] == "response_names_no_call"
    ]
    assert named == ["ghost"]


CALL: dict[str, Any] = {
    "type": "mcp.observed",
    "method": "tools/call",
    "server_name": "srv",
    "tool_name": "x",
}


def test_an_observation_with_the_id_enriches_its_tool_call() -> None:
    (row,) = ended(REQUEST, {**CALL, "tool": "x", "direction": "request", "request_id": 9}, OK).turn().tools
    assert (row["server_name"], row["method"], row["request_id"]) == ("srv", "tools/call", "9")


def test_a_call_on_the_wire_that_no_tool_call_explains_is_one() -> None:
    turn = ended(
        {**CALL, "direction": "request", "request_id": 1},
        {**CALL, "direction": "response", "request_id": 1},
        {**CALL, "direction": "request", "request_id": 2},
    ).turn()
    assert [(row["tool_name"], row["origin"], row["pairing"]) for row in turn.tools] == [
        ("x", "mcp", "paired"),
        ("x", "mcp", "missing_result"),
    ]
    assert checks(turn).count("mcp_without_tool_call") == 2


def test_the_nearest_earlier_unmatched_call_of_server_and_name_is_joined() -> None:
    entry = {
        "type": "tool_call.requested",
        "tool_name": "srv__x",
        "call_tool_origin": "mcp",
        "server_name": "srv",
    }
    turn = ended(
        {**entry, "tool": "1"},
        {**entry, "tool": "2"},
        {**entry, "tool": "3", "server_name": "other"},
        {**CALL, "direction": "request", "request_id": 7},
        {**CALL, "direction": "request", "request_id": 8},
        {**entry, "tool": "4"},
    ).turn()
    assert [(row["call_id"], row["request_id"]) for row in turn.tools] == [
        ("1", "8"),
        ("2", "7"),
        ("3", None),
        ("4", None),
    ]


@pytest.mark.parametrize("method", ["initialize", "tools/list", "resources/read"])
def test_other_methods_are_no_tool_calls(method: str) -> None:
    assert ended({**CALL, "method": method, "direction": "request", "request_id": 1}).turn().tools == []


@pytest.mark.parametrize(
    ("name", "server", "bare"),
    [
        ("srv__x", "srv", "x"),
        ("mcp__srv__x", "srv", "x"),
        ("srv__x", "other", "srv__x"),
        ("srv__", "srv", "srv__"),
    ],
)
def test_a_servers_prefix_is_no_part_of_a_name(name: str, server: str, bare: str) -> None:
    assert bare_name(name, server) == bare


WILD = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(sorted(set(TOOL_TYPES) - {"mcp.observed", "tool_results.submitted"})),
            "tool": st.sampled_from(["1", "2"]),
            "call": st.sampled_from([None, "a"]),
            "status": st.sampled_from(["ok", "error"]),
        }
    ),
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(WILD)
def test_the_usual_way_pairs_as_the_whole_rule_does(wild: list[Row]) -> None:
    story = Story()
    for one in wild:
        story(**{name: value for name, value in one.items() if value is not None})
    placed = list(enumerate(story.events))

    def shape(calls: list[Any]) -> list[Any]:
        return [
            (c.first, c.tool_call_id, c.requests, c.results, c.denials, c.requested_by, c.tool_name)
            for c in calls
        ]

    assert shape(_by_id(placed, [])) == shape(_Pairing(set(), []).pair(placed))
    assert shape(pair_tools(placed, [])) == shape(_by_id(placed, []))
