"""The turn record, version 2 (contract 10): each field only when its input was, canonical bytes, digest, grade, why it stopped."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from tests.unit.fold.events import Story, checks
from turnledger.contract.canonical import dumps
from turnledger.contract.turn_record import TurnRecord
from turnledger.fold.columns import MODEL_CALLS, TOOL_CALLS, TURNS
from turnledger.fold.model import Row, TurnFold


def ended(*events: dict[str, Any], start: Row | None = None, **end: Any) -> Story:
    story = Story(turn="t")
    story("turn.started", **(start or {}))
    for event in events:
        story(**event)
    story("turn.completed", **end)
    return story


def usual() -> TurnFold:
    story = Story(turn="t")
    story("turn.started", input_preview="hello")
    story("message.recorded", role="user", text="hello there")
    figures = {"input": 10, "output": 2, "cache_read": 0}
    for call, tool in (("1", "x"), ("2", None)):
        story("model_call.started", call=call, provider="anthropic", model="m", context_tokens=4)
        story("model_call.completed", call=call, message_id=f"m{call}", usage=figures, stop_reason="end_turn")
        if tool:
            story("tool_call.requested", call=call, tool=tool, tool_name="bash")
            story("tool_call.completed", tool=tool, status="ok", duration_ms=3)
    story("turn.completed", duration_ms=900)
    return story.turn()


def test_the_digest_is_the_sha_256_of_the_canonical_bytes_of_the_record() -> None:
    turn = usual()
    assert turn.body == dumps(turn.record)
    assert turn.digest == sha256(turn.body).hexdigest()
    assert json.loads(turn.body) == turn.record


def test_the_record_is_one_of_version_2() -> None:
    record = usual().record
    TurnRecord.model_validate(record)
    assert record["schema_version"] == 2
    assert set(record) == {
        "schema_version",
        "tenant",
        "session_id",
        "turn_key",
        "turn_id",
        "kind",
        "status",
        "assigned_by",
        "started_at",
        "completed_at",
        "duration_ms",
        "duration_source",
        "user_input",
        "stop",
        "model_calls",
        "round_trips",
        "tool_calls",
        "usage",
        "context",
        "counts",
        "seq_spans",
        "gaps",
        "grade",
    }


def test_rows_have_the_columns_of_their_tables() -> None:
    turn = usual()
    assert list(turn.calls[0]) == [name for name, _ in MODEL_CALLS]
    assert list(turn.tools[0]) == [name for name, _ in TOOL_CALLS]
    assert set(turn.flat) == {name for name, _ in TURNS} - {"digest"}


def test_the_usual_turn() -> None:
    record = usual().record
    assert record["started_at"] == "2026-05-04T10:00:00.000000Z"
    assert record["completed_at"] == "2026-05-04T10:00:08.000000Z"
    assert (record["duration_ms"], record["duration_source"]) == (900, "reported")
    assert record["user_input"] == "hello"
    assert record["stop"] == {"why": "text_without_tool_call", "last_event": "model_call.completed"}
    assert record["round_trips"] == 2
    assert record["model_calls"][1] == {
        "model_call_id": "2",
        "message_id": "m2",
        "provider": "anthropic",
        "model": "m",
        "index": 1,
        "status": "completed",
        "stop_reason": "end_turn",
        "retries": 0,
        "fidelity": "exact",
        "usage": {
            "input_uncached": 10,
            "cache_read": 0,
            "cache_write_5m": None,
            "cache_write_1h": None,
            "cache_write_other": None,
            "output": 2,
            "reasoning": None,
            "total_input": 10,
        },
    }
    assert record["tool_calls"] == [
        {
            "tool_call_id": "x",
            "tool_name": "bash",
            "origin": "unknown",
            "status": "ok",
            "requested_by": "1",
            "duration_ms": 3,
            "pairing": "paired",
        }
    ]
    assert record["counts"] == {"events": 9, "net": 0, "dns": 0, "fs": 0, "process": 0, "security": 0}
    assert record["seq_spans"] == [
        {"producer": "harness", "epoch": 0, "stream": "ledger", "from": 0, "to": 8}
    ]
    assert (record["gaps"], record["grade"]) == ([], "complete")


def test_a_duration_nobody_reported_is_derived_from_both_instants() -> None:
    record = ended().turn().record
    assert (record["duration_ms"], record["duration_source"]) == (1000, "derived")


CALL: Row = {
    "type": "model_call.completed",
    "call": "1",
    "provider": "p",
    "model": "m",
    "usage": {"output": 1},
}
TEXT: Row = {**CALL, "text": "done"}
REQUEST: Row = {"type": "tool_call.requested", "tool": "x", "call": "1", "tool_name": "bash"}
RESULT: Row = {"type": "tool_call.completed", "tool": "x", "status": "ok"}
LIMIT: Row = {"type": "limit.reached", "limit": "iterations", "value": 9}
ANSWER: Row = {"type": "answer.finalized", "text": "42", "exact": True}


@pytest.mark.parametrize(
    ("status", "events", "why"),
    [
        ("failed", [LIMIT, ANSWER], "failed"),
        ("interrupted", [TEXT, LIMIT], "interrupted"),
        ("aborted", [TEXT], "interrupted"),
        ("completed", [TEXT, LIMIT, REQUEST], "limit"),
        ("completed", [LIMIT, TEXT], "text_without_tool_call"),
        ("completed", [LIMIT], "limit"),
        ("completed", [TEXT, REQUEST, ANSWER], "tool_pending"),
        ("completed", [TEXT, REQUEST, RESULT, ANSWER], "answered"),
        ("completed", [TEXT], "text_without_tool_call"),
        ("completed", [{**CALL, "stop_reason": "end_turn"}], "text_without_tool_call"),
        (
            "completed",
            [{"type": "message.recorded", "role": "assistant", "text": "hi"}],
            "text_without_tool_call",
        ),
        ("completed", [TEXT, REQUEST, RESULT], "unknown"),
        ("completed", [REQUEST, TEXT, RESULT], "unknown"),
        ("completed", [CALL], "unknown"),
        ("completed", [], "unknown"),
    ],
)
def test_why_a_turn_stopped_is_the_first_that_holds(status: str, events: list[Row], why: str) -> None:
    turn = ended(*events, status=status).turn()
    assert turn.record["stop"]["why"] == why
    assert turn.flat["stop_why"] == why


def test_answers_limits_compactions_and_errors_are_there_when_events_say_them() -> None:
    record = (
        ended(
            {"type": "context.compacted", "tokens_before": 9, "tokens_after": 3, "strategy": "summary"},
            {"type": "model_call.failed", "call": "1", "error_class": "overloaded", "status_code": 529},
            {"type": "answer.finalized", "text": "first", "exact": True},
            {"type": "answer.finalized", "value": {"n": 1.5}, "exact": False},
            {"type": "limit.reached", "limit": "cost", "value": 0.5, "threshold": 0.4},
            error="broken",
        )
        .turn()
        .record
    )
    assert record["compactions"] == [{"tokens_before": 9, "tokens_after": 3, "strategy": "summary"}]
    assert record["answer"] == {"value": {"n": 1.5}, "exact": False}
    assert record["limits"] == [{"limit": "cost", "value": 0.5, "threshold": 0.4}]
    assert record["errors"] == [
        {"source": "model_call", "model_call_id": "1", "error_class": "overloaded", "status_code": 529},
        {"source": "turn", "error": "broken"},
    ]


def test_floats_that_events_say_are_written_canonically() -> None:
    turn = ended({"type": "limit.reached", "limit": "cost", "value": 1.0, "threshold": 1e21}).turn()
    assert b'"limits":[{"limit":"cost","threshold":1e+21,"value":1}]' in turn.body
    assert turn.body == dumps(turn.record)


def test_user_input_is_the_preview_else_the_first_user_message() -> None:
    content = [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]
    asked: Row = {"type": "message.recorded", "role": "user", "content": content}
    assert ended(asked).turn().record["user_input"] == "one\ntwo"
    assert ended(asked, start={"input_preview": "short"}).turn().record["user_input"] == "short"
    assert "user_input" not in ended().turn().record


def written(slot: str, old: Any, new: Any) -> Row:
    return {"type": "slot.written", "slot": slot, "old": old, "new": new}


def observed(when: str, **slots: Any) -> Row:
    return {"type": "state.observed", "state": "s", "when": when, "slots": slots}


@pytest.mark.parametrize(
    ("rule", "before", "events", "after", "unattributed"),
    [
        ("a written change is attributed", {"a": 1}, [written("a", 1, 2)], {"a": 2}, []),
        ("a change without an event", {"a": 1}, [], {"a": 2}, [{"slot": "a", "old": 1, "new": 2}]),
        (
            "a change after the last event that explains",
            {"a": 1},
            [written("a", 1, 2)],
            {"a": 3},
            [{"slot": "a", "old": 2, "new": 3}],
        ),
        ("written and set back", {"a": 1}, [written("a", 1, 2)], {"a": 1}, []),
        (
            "dict values are compared",
            {"a": {"x": 1}},
            [],
            {"a": {"x": 2}},
            [{"slot": "a", "old": {"x": 1}, "new": {"x": 2}}],
        ),
        ("equal dicts are no change", {"a": {"x": 1, "y": 2}}, [], {"a": {"y": 2, "x": 1.0}}, []),
        ("a removed slot changed to absent", {"a": 1}, [], {}, [{"slot": "a", "old": 1, "new": None}]),
        ("true is not 1", {"a": 1}, [], {"a": True}, [{"slot": "a", "old": 1, "new": True}]),
        ("nothing", {"a": 1}, [], {"a": 1}, []),
    ],
)
def test_changes_of_slots_that_no_event_explains(
    rule: str, before: Row, events: list[Row], after: Row, unattributed: list[Row]
) -> None:
    record = ended(observed("before", **before), *events, observed("after", **after)).turn().record
    assert dumps(record["unattributed_diff"]) == dumps(unattributed)
    assert record.get("slot_diff", []) == [
        {"slot": e["slot"], "old": e["old"], "new": e["new"]} for e in events
    ]


def test_filled_includes_zero_false_and_empty() -> None:
    slots = {"zero": 0, "no": False, "empty": "", "none": [], "null": None}
    observation = {**observed("after"), "slots": slots, "required": [*slots, "absent"]}
    assert ended(observation).turn().record["missing_required_slots"] == ["null", "absent"]


def test_the_last_snapshot_after_counts() -> None:
    first = {**observed("after"), "slots": {}, "required": ["a"]}
    second = {**observed("after"), "slots": {"a": 1}, "required": ["a", "b"]}
    record = ended(first, second).turn().record
    assert (record["required_slots_in_state"], record["missing_required_slots"]) == (["a", "b"], ["b"])


def grade(*events: Row) -> str:
    story = Story()
    for event in events:
        story(**event)
    turn = story.fold().turns[0]
    assert turn.flat["grade"] == turn.record["grade"]
    grade: str = turn.record["grade"]
    return grade


START: Row = {"type": "turn.started", "turn": "t"}
END: Row = {"type": "turn.completed", "turn": "t"}
HOLE: Row = {"type": "message.recorded", "turn": "t", "seq": 5, "role": "system"}
SPARSE: Row = {"type": "stream.declared", "density": "unknown"}


@pytest.mark.parametrize(
    ("rule", "events", "expected"),
    [
        ("nothing is wrong", [START, END], "complete"),
        ("an open turn may lack its end", [START], "complete"),
        ("an open gap inside", [START, HOLE, END], "gaps"),
        (
            "a declared loss inside",
            [START, HOLE, END, {"type": "stream.lost", "from_seq": 1, "to_seq": 4}],
            "complete",
        ),
        (
            "a gap beside",
            [{**START, "seq": 3}, {**END, "seq": 4}],
            "complete",
        ),
        ("no start", [{"type": "message.recorded", "turn": "t", "role": "system"}, END], "partial"),
        ("no end once abandoned", [START, {"type": "session.ended"}], "partial"),
        ("a missing result", [START, {**REQUEST, "turn": "t"}, END], "partial"),
        ("an orphan result", [START, {**RESULT, "turn": "t"}, END], "partial"),
        ("a late result", [START, {**REQUEST, "turn": "t"}, END, {**RESULT, "turn": "t"}], "complete"),
        ("a call that told nothing", [START, {**CALL, "turn": "t", "usage": None}, END], "partial"),
        ("a lower bound", [START, {**CALL, "turn": "t", "source": "transcript"}, END], "partial"),
        ("no counted stream", [SPARSE, START, END], "unknown"),
        ("no counted stream, and partial", [SPARSE, START, {**REQUEST, "turn": "t"}, END], "partial"),
    ],
)
def test_grade_is_the_worst_that_holds(rule: str, events: list[Row], expected: str) -> None:
    assert grade(*events) == expected


def test_gaps_that_a_turns_span_encloses_are_its_own() -> None:
    story = Story(turn="t")
    story("turn.started", seq=2)
    story("message.recorded", role="system", seq=6)
    story("stream.lost", from_seq=4, to_seq=4, seq=8, turn=None)
    story("turn.completed", seq=7)
    (turn,) = story.fold().turns
    stream: Row = {"producer": "harness", "epoch": 0, "stream": "ledger"}
    assert turn.record["gaps"] == [
        {**stream, "from_seq": 3, "to_seq": 3, "state": "open"},
        {**stream, "from_seq": 4, "to_seq": 4, "state": "declared_lost"},
        {**stream, "from_seq": 5, "to_seq": 5, "state": "open"},
    ]
    assert turn.flat["gap_count"] == 3


def test_spans_are_one_a_stream_and_events_without_numbers_have_none() -> None:
    story = Story(turn="t")
    story("turn.started", seq=4)
    story("message.recorded", role="system", stream="bus", seq=9)
    story("message.recorded", role="system", stream="bus", seq=7)
    story("message.recorded", role="system", receipt_key="r")
    story("turn.completed", seq=5)
    record = story.turn().record
    assert record["seq_spans"] == [
        {"producer": "harness", "epoch": 0, "stream": "bus", "from": 7, "to": 9},
        {"producer": "harness", "epoch": 0, "stream": "ledger", "from": 4, "to": 5},
    ]


def test_inherited_messages_are_not_counted_and_a_turn_of_inherited_events_says_so() -> None:
    story = Story(turn="t")
    story("turn.started", provenance="inherited")
    story("message.recorded", role="user", text="x", provenance="inherited")
    turn = story.turn()
    assert (turn.flat["message_count"], turn.flat["inherited"]) == (0, True)
    story("message.recorded", role="user", text="y")
    turn = story.turn()
    assert (turn.flat["message_count"], turn.flat["inherited"]) == (1, False)


def test_a_turns_kind_and_run_are_its_first_events() -> None:
    story = Story(turn="t", kind="eval", run_id="r")
    story("turn.started")
    story("turn.completed")
    record = story.turn().record
    assert (record["kind"], record["run_id"]) == ("eval", "r")


def test_point_events_are_counted_by_kind() -> None:
    record = (
        ended(
            {"type": "net.requested", "domain": "d", "port": 443, "decision": "allowed"},
            {"type": "dns.queried", "qname": "d", "qtype": "A"},
            {"type": "fs.changed", "action": "read", "path": "p"},
            {"type": "process.started", "exec_id": "1", "command": "c"},
            {"type": "process.exited", "exec_id": "1", "exit_code": 0},
            {"type": "security.asked", "ask_id": "a", "status": "open"},
        )
        .turn()
        .record
    )
    assert record["counts"] == {"events": 8, "net": 1, "dns": 1, "fs": 1, "process": 2, "security": 1}


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"type": "message.recorded", "role": "user", "token_count": -1}, "token_count"),
        ({"type": "guard.evaluated", "guard": 1, "outcome": "passed"}, "guard"),
        ({"type": "model_call.started", "provider": ["x"], "model": "m", "call": "1"}, "provider"),
        (
            {"type": "model_call.completed", "call": "1", "stop_reason": ["x"], "text": {"a": 1}},
            "stop_reason",
        ),
        ({"type": "tool_call.completed", "tool": "x", "duration_ms": "fast"}, "duration_ms"),
        ({"type": "limit.reached", "limit": ["rate"]}, "limit"),
        ({"type": "usage.reported", "usage": {"output": 1}, "counter_kind": ["x"]}, "counter_kind"),
        ({"type": "state.observed", "when": "after", "slots": [1], "required": "all"}, "slots"),
        ({"type": "transition.decided", "state": "s", "verdict": "v", "candidates": {"a": 1}}, "candidates"),
    ],
)
def test_a_wrong_type_anywhere_is_null_and_one_finding(event: Row, field: str) -> None:
    turn = ended(event).turn()
    wrong = [
        finding["row"]["field"] for finding in turn.findings if finding["check"] == "wrong_type_in_payload"
    ]
    assert field in wrong
    assert len(wrong) == len(set(wrong))


def test_findings_say_where_they_stand() -> None:
    turn = ended({"type": "tool_call.completed", "tool": "x", "duration_ms": "fast", "status": "ok"}).turn()
    assert checks(turn) == ["tool_orphan_result", "wrong_type_in_payload"]
    wrong = next(finding for finding in turn.findings if finding["check"] == "wrong_type_in_payload")
    assert wrong["row"] == {
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "seq": 1,
        "type": "tool_call.completed",
        "field": "duration_ms",
        "turn_key": "t",
    }
