"""One call (contract 8): which events are one call, what its row says; and that the quick ways answer as the whole rule does."""

from __future__ import annotations

import gc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fold.events import Story, checks
from turnledger.contract.event import Event
from turnledger.fold.calls import CALL_TYPES, Sighting, TurnCalls, _Grouping, _plain
from turnledger.fold.context import SESSION_WIDE, TurnContext, claims
from turnledger.fold.model import Row
from turnledger.fold.session import fold_whole
from turnledger.fold.turnfold import fold_turn


def rows(story: Story) -> list[Row]:
    """All rows of model_calls, turn by turn, then outside turns."""
    fold = story.fold()
    return [row for turn in fold.turns for row in turn.calls] + fold.calls


def outputs(story: Story) -> list[int | None]:
    return [row["output_tokens"] for row in rows(story)]


def test_equal_provider_and_message_id_are_one_call_in_the_whole_session() -> None:
    story = Story(provider="anthropic", message_id="m")
    story("turn.started", turn="a")
    story("model_call.started", turn="a", call="1")
    story("turn.started", turn="b")
    story("model_call.completed", turn="b", call="1", usage={"output": 4})
    (row,) = rows(story)
    assert (row["turn_key"], row["status"], row["output_tokens"]) == ("a", "completed", 4)


def test_one_message_id_of_two_providers_is_two_calls() -> None:
    story = Story(turn="t", message_id="m")
    story("model_call.completed", call="1", provider="a", usage={"output": 1})
    story("model_call.completed", call="2", provider="b", stream="other", usage={"output": 2})
    assert sorted(outputs(story), key=str) == [1, 2]


def test_an_event_without_a_provider_takes_the_only_one_of_its_model_call() -> None:
    story = Story(turn="t", call="1")
    story("model_call.started", provider="anthropic", model="m")
    story("usage.reported", usage={"input": 1, "output": 4, "cache_read": 0})
    (row,) = rows(story)
    assert (row["provider"], row["token_convention"], row["total_input_tokens"]) == (
        "anthropic",
        "exclusive",
        1,
    )


def test_else_the_only_provider_seen_with_its_message_id() -> None:
    story = Story(turn="t", message_id="m")
    story("model_call.completed", call="1", provider="anthropic", usage={"output": 4})
    story("usage.reported", stream="file:x", usage={"output": 4})
    assert len(rows(story)) == 1


def test_equal_request_ids_join_where_one_lacks_a_message_id() -> None:
    story = Story(turn="t", provider="p", request_id="r")
    story("model_call.started", call="1")
    story("usage.reported", stream="file:x", message_id="m", usage={"output": 4})
    (row,) = rows(story)
    assert (row["model_call_id"], row["message_id"], row["output_tokens"]) == ("1", "m", 4)


def test_a_request_id_seen_with_two_messages_joins_nothing() -> None:
    story = Story(turn="t", provider="p", request_id="r")
    story("usage.reported", message_id="m1", usage={"output": 1})
    story("usage.reported", message_id="m2", usage={"output": 2})
    story("usage.reported", usage={"output": 3})
    assert outputs(story) == [1, 2, 3]


def test_a_request_id_that_one_stream_gives_to_two_calls_joins_nothing() -> None:
    story = Story(turn="t", provider="p", request_id="r")
    story("model_call.completed", call="1", usage={"output": 1})
    story("model_call.completed", call="2", usage={"output": 2})
    assert outputs(story) == [1, 2]


def test_equal_model_call_ids_are_one_call_in_one_turn_and_two_in_two() -> None:
    story = Story(provider="p")
    for turn in ("a", "b"):
        story("turn.started", turn=turn)
        story("model_call.started", turn=turn, call="1")
        story("model_call.completed", turn=turn, call="1", usage={"output": 1})
        story("turn.completed", turn=turn)
    assert [(row["turn_key"], row["status"]) for row in rows(story)] == [
        ("a", "completed"),
        ("b", "completed"),
    ]


def test_one_model_call_id_with_two_messages_is_two_calls_and_the_nameless_join_the_earlier() -> None:
    story = Story(turn="t", provider="p", call="1")
    story("model_call.started")
    story("model_call.completed", message_id="m1", usage={"output": 1})
    story("model_call.completed", message_id="m2", usage={"output": 2})
    story("usage.reported", final=True, usage={"output": 1, "reasoning": 1})
    found = rows(story)
    assert [(row["message_id"], row["started_at"] is not None) for row in found] == [
        ("m1", True),
        ("m2", False),
    ]
    assert found[0]["reasoning_tokens"] == 1


def test_a_message_id_that_one_stream_gives_to_two_calls_is_no_identity() -> None:
    story = Story(turn="t", provider="p", message_id="m")
    story("model_call.completed", call="1", usage={"output": 1})
    story("model_call.completed", call="2", usage={"output": 2})
    assert outputs(story) == [1, 2]
    assert "message_id_reused" in checks(story.fold())


def test_an_end_without_ids_belongs_to_the_latest_unpaired_start_before_it() -> None:
    story = Story(turn="t", provider="p", model="m")
    story("model_call.started")
    story("model_call.started")
    story("model_call.completed", usage={"output": 1})
    story("model_call.failed", error_class="timeout")
    found = rows(story)
    assert [row["status"] for row in found] == ["failed", "completed"]


def test_an_end_whose_request_id_differs_is_another_call() -> None:
    story = Story(turn="t", provider="p", model="m")
    story("model_call.started", request_id="r1")
    story("model_call.completed", request_id="r2", usage={"output": 1})
    assert [row["status"] for row in rows(story)] == ["started", "completed"]


def test_a_start_in_another_stream_or_turn_is_not_paired() -> None:
    story = Story(provider="p", model="m")
    story("model_call.started", turn="a")
    story("model_call.started", turn="b", stream="other")
    story("model_call.completed", turn="b", usage={"output": 1})
    assert sorted(row["status"] for row in rows(story)) == ["completed", "started", "started"]


def test_a_report_that_names_no_call_is_a_call_of_its_own() -> None:
    story = Story(turn="t", provider="openai")
    story("usage.reported", usage={"output": 1})
    story("usage.reported", usage={"output": 1})
    assert [row["call_key"] for row in rows(story)] == ["@harness/0/ledger/0", "@harness/0/ledger/1"]


def test_a_snapshot_without_ids_belongs_to_the_open_call_of_its_stream() -> None:
    story = Story(turn="t", provider="p", model="m")
    story("model_call.started", call="1")
    story("model_call.started", call="2", stream="other")
    story("usage.reported", counter_kind="snapshot", usage={"output": 3})
    story("model_call.completed", call="1")
    assert [(row["model_call_id"], row["output_tokens"]) for row in rows(story)] == [("1", 3), ("2", None)]


def test_a_snapshot_without_an_open_call_is_kept_and_not_counted() -> None:
    story = Story(turn="t", provider="p", model="m")
    story("turn.started")
    story("model_call.started", call="1")
    story("model_call.completed", call="1", usage={"output": 1})
    story("usage.reported", counter_kind="snapshot", usage={"output": 3})
    story("turn.completed")
    turn = story.turn()
    assert [row["output_tokens"] for row in turn.calls] == [1]
    assert "usage_snapshot_without_call" in checks(turn)


def test_a_retry_makes_no_row_and_raises_the_count_of_its_call() -> None:
    story = Story(turn="t", provider="p", model="m")
    story("model_call.retried", call="0", attempt=9, error_class="timeout")
    story("model_call.started", call="1")
    story("model_call.retried", attempt=3, error_class="timeout")
    story("model_call.completed", call="1", usage={"output": 1})
    turn = story.turn()
    assert [(row["model_call_id"], row["retries"]) for row in turn.calls] == [("1", 3)]
    assert [f["row"]["model_call_id"] for f in turn.findings if f["check"] == "call_without_record"] == ["0"]


def test_failures_of_another_model_are_no_retries() -> None:
    story = Story(turn="t", provider="p")
    story("model_call.failed", call="1", model="small", error_class="timeout")
    story("model_call.completed", call="2", model="large", usage={"output": 1})
    assert [row["retries"] for row in rows(story)] == [0, 0]


def test_completed_beats_failed_on_one_call() -> None:
    story = Story(turn="t", provider="p", model="m", call="1")
    story("model_call.completed", usage={"output": 1}, status_code=200)
    story("model_call.failed", error_class="cut", status_code=500)
    (row,) = rows(story)
    assert (row["status"], row["status_code"], row["error_class"]) == ("completed", 200, None)


def test_a_mention_of_a_call_without_events_of_its_own_makes_no_row() -> None:
    story = Story(turn="t")
    story("tool_call.requested", tool="x", call="ghost", tool_name="bash")
    turn = story.turn()
    assert turn.calls == []
    assert "call_without_record" in checks(turn)


def test_provider_and_model_are_those_of_the_best_completion() -> None:
    story = Story(turn="t", call="1")
    story("model_call.started", provider="p", model="asked")
    story("usage.reported", provider="p", model="reported", source="transcript", usage={"output": 9})
    story("model_call.completed", provider="p", model="answered", usage={"output": 1})
    (row,) = rows(story)
    assert (row["model"], row["output_tokens"]) == ("answered", 1)


def test_a_calls_hour_is_its_winning_reports_time_else_its_last_known_time() -> None:
    story = Story(turn="t", provider="p")
    story("model_call.started", call="1", second=1)
    story("usage.reported", call="1", second=5, final=True, usage={"output": 1})
    story("model_call.completed", call="1", second=9)
    story("model_call.started", call="2", second=20)
    story("model_call.completed", call="2", second=None, usage={"output": 1})
    events = story.events
    assert [row["hour_at"] for row in rows(story)] == [events[1].at, events[3].at]
    assert [row["least_at"] for row in rows(story)] == [events[0].at, events[3].at]


def test_a_reported_cost_is_kept_as_exact_decimal_text() -> None:
    story = Story(turn="t", provider="p")
    story("model_call.completed", call="1", usage={"output": 1}, reported_cost_usd=0.0000015)
    assert rows(story)[0]["reported_cost_usd"] == "0.0000015"


def test_null_model_and_null_tokens_are_named_and_failures_are_not() -> None:
    story = Story(turn="t", provider="p")
    story("turn.started")
    story("model_call.completed", call="1")
    story("model_call.failed", call="2", error_class="auth")
    story("turn.completed")
    assert checks(story.turn()) == ["null_model", "null_tokens"]


def test_claims_are_the_ids_that_mean_one_call_in_the_whole_session() -> None:
    def claimed(type: str, call: str | None = None, **payload: Any) -> Any:
        return claims(Event(session_id="s", type=type, seq=0, model_call_id=call, payload=payload))

    assert claimed("model_call.completed", "1", message_id="m", request_id="r") == (
        ("message", "m"),
        ("request", "r"),
    )
    assert claimed("model_call.started", "1") == ()
    assert claimed("tool_call.requested", "1", message_id="m") == ()
    assert claimed("model_call.retried", "1") == ()
    assert claimed("model_call.retried") == (SESSION_WIDE,)
    assert claimed("usage.reported", counter_kind="snapshot") == (SESSION_WIDE,)
    assert claimed("usage.reported") == ()


# The quick ways


TYPES = [*CALL_TYPES, "usage.reported", "model_call.completed"]
IDS = st.sampled_from([None, None, "1", "2"])
WILD = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from([*TYPES, "turn.started", "turn.completed"]),
            "turn": st.sampled_from(["a", "a", "a", "b"]),
            "call": IDS,
            "message_id": IDS,
            "request_id": IDS,
            "provider": st.sampled_from([None, "p", "p", "q"]),
            "stream": st.sampled_from(["ledger", "ledger", "other"]),
            "counter_kind": st.sampled_from(["per_call", "per_call", "snapshot", "cumulative", "rollup"]),
            "output": st.integers(0, 3),
            "last": st.sampled_from([None, None, 0, 1, 3]),
            "provider_thread": st.sampled_from([None, None, "th"]),
            "usage_stream": st.sampled_from([None, None, "u"]),
            "start_known": st.sampled_from([None, None, True, False]),
            "provenance": st.sampled_from([None, None, None, "inherited"]),
        }
    ),
    max_size=8,
)


def told(story_of: list[Row]) -> Story:
    story = Story()
    for one in story_of:
        event = {name: value for name, value in one.items() if value is not None}
        output, last = event.pop("output"), event.pop("last", None)
        if event["type"] in ("usage.reported", "model_call.completed"):
            event["usage"] = {"output": output}
            if last is not None:
                event["last"] = {"output": last}
        if event["type"].startswith("turn."):
            event = {
                name: event[name] for name in ("type", "turn", "stream", "provider_thread") if name in event
            }
        story(event.pop("type"), **event)
    return story


@settings(max_examples=120, deadline=None)
@given(WILD)
def test_the_plain_way_groups_as_the_whole_rule_does(wild: list[Row]) -> None:
    story = told([{**one, "turn": "a", "call": one["call"] or "3"} for one in wild])

    def sightings() -> list[Sighting]:
        called = [event for event in story.events if event.type in CALL_TYPES]
        return [Sighting(event, CALL_TYPES[event.type], n, "a", []) for n, event in enumerate(called)]

    def shape(clusters: list[list[Sighting]] | None) -> Any:
        return clusters and [[(s.index, s.provider) for s in cluster] for cluster in clusters]

    plain = _plain(sightings())
    if plain is not None:
        home = TurnCalls()
        assert shape(_Grouping(sightings(), lambda _: home).clusters()) == shape(plain)
        assert home.findings == []


def _of_turn(one: Row) -> Row:
    """Ids that no other turn has; an event that could cling to another turn's call has one."""
    named = {name: one[name] and one["turn"] + one[name] for name in ("message_id", "request_id")}
    return named if any(named.values()) else {**named, "call": one["call"] or "3"}


@settings(max_examples=70, deadline=None)
@given(WILD)
def test_a_turn_with_claims_of_its_own_folds_by_itself_as_within_its_session(wild: list[Row]) -> None:
    story = told([{**one, **_of_turn(one)} for one in wild])
    whole = fold_whole("default", "s", story.events)
    owners: dict[Any, set[str]] = {}
    for turn in whole.membership.turns:
        for event in turn.events:
            for claim in claims(event):
                owners.setdefault(claim, set()).add(turn.key)
    assert SESSION_WIDE not in owners and all(len(keys) == 1 for keys in owners.values())
    threads = None
    for fold in whole.fold.turns:
        context = TurnContext("default", "s", whole.facts.running, whole.gaps.holes, whole.gaps.counted)
        if threads is not None:
            context = TurnContext(
                "default", "s", whole.facts.running, whole.gaps.holes, whole.gaps.counted, threads
            )
        alone = fold_turn(fold.turn, context)
        threads = alone.threads
        assert alone.body == fold.body
        assert (alone.calls, alone.tools, alone.parts) == (fold.calls, fold.tools, fold.parts)
        ours = [f for f in fold.findings if not f["check"].startswith("turn_")]
        assert alone.findings == ours


@settings(max_examples=70, deadline=None)
@given(WILD, st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_calls(wild: list[Row], random: Any) -> None:
    story = told(wild)
    shuffled = list(story.events)
    random.shuffle(shuffled)
    one = fold_whole("default", "s", story.events).fold
    other = fold_whole("default", "s", shuffled).fold
    assert [turn.body for turn in one.turns] == [turn.body for turn in other.turns]
    assert one.calls == other.calls


def test_a_fold_leaves_no_cycles_behind() -> None:
    story = Story(turn="t", provider="p", model="m")
    story("turn.started")
    story("model_call.started", call="1")
    story("model_call.completed", call="1", message_id="m", usage={"output": 1})
    story("tool_call.requested", tool="x", call="1", tool_name="bash")
    story("tool_call.completed", tool="x", status="ok")
    story("turn.completed")
    turn = story.turn().turn
    context = TurnContext("default", "s")
    fold_turn(turn, context)
    gc.collect()
    gc.disable()
    try:
        fold_turn(turn, context)
        assert gc.collect() == 0
    finally:
        gc.enable()
