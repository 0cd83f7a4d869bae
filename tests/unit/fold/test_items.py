"""Model items and tool responses (contract 11): what is an item, which of two equal ones stands, how they are counted, and late ones."""

from __future__ import annotations

from hashlib import sha256

from tests.unit.fold.events import START, Story, checks
from turnledger.contract.event import Event
from turnledger.fold.model import Row
from turnledger.fold.state import SessionChanges, SessionState


def items(story: Story) -> list[Row]:
    return story.fold().points.get("model_items", [])


def shown(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(row["item_type"], row["item_index"], row["model_call_id"], row["content"]) for row in rows]


def test_a_turn_of_tool_use_has_the_five_kinds_in_order() -> None:
    story = Story(turn="t", trace="x")
    story("message.recorded", role="user", text="what is in /a?")
    story(
        "model_call.completed",
        call="c1",
        provider="anthropic",
        model="m",
        thinking="I look",
        stop_reason="tool_use",
    )
    story("tool_call.requested", call="c1", tool="u", tool_name="read", arguments={"path": "/a"})
    story("tool_call.completed", tool="u", status="ok", preview="one line")
    story("model_call.completed", call="c2", provider="anthropic", model="m", text="one line is in it")
    assert shown(items(story)) == [
        ("request", 1, None, "what is in /a?"),
        ("reasoning", 1, "c1", "I look"),
        ("tool_call", 2, "c1", {"path": "/a"}),
        ("tool_response", 2, None, "one line"),
        ("response", 1, "c2", "one line is in it"),
    ]


def test_an_item_has_its_position_its_names_and_the_hash_of_its_content() -> None:
    story = Story(turn="t", trace="x")
    event = story("model_call.completed", call="c", provider="anthropic", model="m", text="hé")
    event.event_id = "0123456789ab"
    (row,) = items(story)
    assert row == {
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "seq": 0,
        "receipt_key": None,
        "event_id": "0123456789ab",
        "occurred_at": START,
        "trace_id": "x",
        "turn_id": "t",
        "turn_index": None,
        "model_call_id": "c",
        "tool_call_id": None,
        "kind": "live",
        "process_name": None,
        "pid": None,
        "item_index": 1,
        "item_type": "response",
        "role": None,
        "tool_name": None,
        "provider": "anthropic",
        "model": "m",
        "content_sha256": sha256(b"h\xc3\xa9").hexdigest(),
        "content_bytes": 3,
        "content_field": "text",
        "content": "hé",
    }


def test_a_content_that_is_no_text_is_hashed_as_canonical_json() -> None:
    story = Story(turn="t")
    story("tool_call.requested", tool="u", tool_name="read", arguments={"b": 1.0, "a": 2})
    (row,) = items(story)
    assert row["content_sha256"] == sha256(b'{"a":2,"b":1}').hexdigest()
    assert (row["content_bytes"], row["tool_name"]) == (13, "read")


def test_the_same_content_of_a_trace_is_one_item_and_is_counted_where_it_comes_again() -> None:
    story = Story(turn="t", trace="x")
    story("message.recorded", role="user", text="hello", call="c1")
    story("message.recorded", role="user", text="hello", call="c2")  # the history is sent again
    story("message.recorded", role="user", text="and now", call="c2")
    assert shown(items(story)) == [("request", 1, "c1", "hello"), ("request", 2, "c2", "and now")]


def test_the_same_content_of_another_trace_is_another_item() -> None:
    story = Story(turn="t")
    story("message.recorded", role="user", text="hello", trace="x")
    story("message.recorded", role="user", text="hello", trace="y")
    assert len(items(story)) == 2


def test_without_a_trace_a_turn_is_one() -> None:
    story = Story()
    story("message.recorded", role="user", text="yes", turn="a")
    story("message.recorded", role="user", text="yes", turn="a")
    story("message.recorded", role="user", text="yes", turn="b")
    story("message.recorded", role="user", text="yes", turn_index=7)
    assert [(row["turn_id"], row["turn_index"]) for row in items(story)] == [
        ("a", None),
        ("b", None),
        (None, 7),
    ]


def test_an_answer_that_two_events_tell_is_one_item() -> None:
    story = Story(turn="t", trace="x")
    story("model_call.completed", call="c", text="well")
    story("message.recorded", role="assistant", text="well", call="c")
    assert shown(items(story)) == [("response", 1, "c", "well")]


def test_results_of_two_calls_are_two_items_although_they_say_the_same() -> None:
    story = Story(turn="t", trace="x")
    story("tool_call.completed", tool="u1", status="ok", preview="ok")
    story("tool_call.completed", tool="u2", status="ok", preview="ok")
    story("message.recorded", role="tool", tool="u2", text="ok")
    assert [row["tool_call_id"] for row in items(story)] == ["u1", "u2"]


def test_requests_for_two_tools_with_the_same_arguments_are_two_items() -> None:
    story = Story(turn="t", trace="x")
    story("tool_call.requested", tool_name="a", arguments={})
    story("tool_call.requested", tool_name="b", arguments={})
    assert [row["tool_name"] for row in items(story)] == ["a", "b"]


def test_a_user_message_with_results_is_a_tool_response() -> None:
    story = Story(turn="t")
    content = [{"type": "tool_result", "tool_use_id": "u", "content": "x"}]
    story("message.recorded", role="user", content=content)
    story("message.recorded", role="user", text="x", tool="u")
    story("message.recorded", role="system", text="be brief")
    assert [(row["item_type"], row["role"]) for row in items(story)] == [
        ("tool_response", "user"),
        ("tool_response", "user"),
        ("request", "system"),
    ]


def test_a_failed_tool_that_shows_no_result_has_its_message_as_response() -> None:
    story = Story(turn="t")
    story("tool_call.completed", tool="u", status="error", error_message="no such file")
    assert shown(items(story)) == [("tool_response", 1, None, "no such file")]


def test_what_says_nothing_is_no_item() -> None:
    story = Story(turn="t")
    story("message.recorded", role="user", text="")
    story("message.recorded", role="somebody", text="x")
    story("model_call.completed", call="c", text=7, thinking="")
    story("tool_call.completed", tool="u", status="ok")
    assert items(story) == []


def test_each_id_of_a_submission_is_one_response_with_the_call_that_consumes_it() -> None:
    story = Story(turn="t", trace="x")
    story("turn.started")
    for tool in ("u1", "u2"):
        story("tool_call.requested", call="c1", tool=tool, tool_name="bash")
        story("tool_call.completed", tool=tool, status="ok")
    story(
        "model_call.completed",
        call="c1",
        model="m",
        usage={"input": 1, "output": 1, "cache_read": 0},
        token_convention="exclusive",
    )
    story("tool_results.submitted", call="c2", tool_call_ids=["u1", "u2", "u1"], context_tokens=900)
    story(
        "model_call.completed",
        call="c2",
        model="m",
        usage={"input": 1, "output": 1, "cache_read": 0},
        token_convention="exclusive",
    )
    fold = story.fold()
    rows = fold.points["tool_responses"]
    assert [
        (row["tool_call_id"], row["response_index"], row["model_call_id"], row["context_tokens"], row["seq"])
        for row in rows
    ] == [("u1", 1, "c2", 900, 6), ("u2", 2, "c2", 900, 6)]
    assert rows[0]["occurred_at"] == START + 6_000_000
    assert checks(fold) == []


def test_a_response_to_no_call_is_a_row_and_a_finding() -> None:
    story = Story(turn="t")
    story("turn.started")
    story("tool_results.submitted", tool_call_ids=["ghost", 7])
    fold = story.fold()
    assert [row["tool_call_id"] for row in fold.points["tool_responses"]] == ["ghost"]
    assert checks(fold) == ["response_names_no_call", "wrong_type_in_payload"]


def take(state: SessionState, *events: Event) -> SessionChanges:
    state.extend(list(events))
    return state.take_changes(True, force=True)


def keys(changes: SessionChanges) -> list[tuple[str, int | None, int]]:
    rows = [*changes.points.get("model_items", []), *(item.row() for item in changes.items)]
    return [(row["stream"], row["seq"], row["item_index"]) for row in rows]


def test_an_item_that_comes_late_moves_those_behind_it() -> None:
    story = Story(turn="t", trace="x", call="c")
    second = story("message.recorded", role="user", text="two", second=2)
    first = story("message.recorded", role="user", text="one", second=1, stream="bus")
    state = SessionState("default", "s")
    assert keys(take(state, second)) == [("ledger", 0, 1)]
    changes = take(state, first)
    assert sorted(keys(changes)) == [("bus", 0, 1), ("ledger", 0, 2)]
    assert changes.replaced_items == [("harness", 0, "ledger", 0, None, "request")]


def test_the_earlier_of_two_equal_items_stands_also_when_it_comes_later() -> None:
    story = Story(turn="t", trace="x")
    later = story("message.recorded", role="user", text="same", second=2, call="c2")
    earlier = story("message.recorded", role="user", text="same", second=1, stream="bus", call="c1")
    state = SessionState("default", "s")
    assert keys(take(state, later)) == [("ledger", 0, 1)]
    changes = take(state, earlier)
    assert keys(changes) == [("bus", 0, 1)]
    assert changes.replaced_items == [("harness", 0, "ledger", 0, None, "request")]


def test_items_make_no_round_of_their_own_and_come_with_the_next_take() -> None:
    story = Story(turn="t")
    state = SessionState("default", "s")
    take(state, story("turn.started"))
    state.extend([story("message.recorded", role="user", text="hello")])
    assert not state.has_changes
    assert state.has_open_changes
    assert len(state.take_changes(True).items) == 1
    assert not state.has_open_changes


def test_rows_of_a_superseded_stream_are_taken_back() -> None:
    story = Story(turn="t", trace="x")
    old = [
        story("message.recorded", role="user", text="hello", stream="old"),
        story("tool_results.submitted", tool_call_ids=["u"], stream="old"),
        story("body.recorded", for_event_id="e", data="aGk=", stream="old"),
    ]
    state = SessionState("default", "s")
    take(state, *old)
    better = story(
        "stream.superseded",
        producer="harness",
        stream="new",
        payload={"epoch": 0, "stream": "old", "producer": "harness", "reason": "newer"},
    )
    changes = take(state, better)
    assert changes.replaced_items == [("harness", 0, "old", 0, None, "request")]
    assert changes.replaced_points == {
        "tool_responses": [("harness", 0, "old", 1, None)],
        "event_bodies": [("harness", 0, "old", 2, None)],
    }
