"""Worked cases of contract 16 that one session's events decide: calls, usage, tools, slots. Every expected value is the contract's."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.unit.fold.events import Story, checks, told
from turnledger.contract.event import Event
from turnledger.fold.model import Row, TurnFold
from turnledger.fold.session import fold_session


def usage(**counters: int) -> Row:
    return dict(counters)


def total(story: Story, field: str) -> int:
    """The sum of a usage field over the turns."""
    return sum(turn.record["usage"][field] or 0 for turn in story.fold().turns)


def pairings(turn: TurnFold) -> dict[str, str]:
    return {tool["tool_call_id"]: tool["pairing"] for tool in turn.record["tool_calls"]}


def test_c2_the_final_report_wins_over_smaller_samples_before_and_after() -> None:
    story = Story(turn="t")
    story("turn.started")
    for output in (3, 120):
        story(
            "usage.reported",
            call="c",
            provider="anthropic",
            counter_kind="snapshot",
            usage=usage(output=output),
        )
    story("model_call.completed", call="c", provider="anthropic", model="m", usage=usage(output=358))
    story("usage.reported", call="c", provider="anthropic", counter_kind="snapshot", usage=usage(output=120))
    story("turn.completed")
    turn = story.turn()
    assert [call["output_tokens"] for call in turn.calls] == [358]
    assert turn.record["usage"]["output"] == 358


def test_c3_a_stream_sample_and_the_final_message_are_one_call_of_20_tokens() -> None:
    figures = usage(input=10, output=5, cache_read=2, cache_write=3, reasoning=2)
    story = Story(turn="t")
    story("turn.started")
    same: dict[str, Any] = {
        "message_id": "msg_1",
        "token_convention": "exclusive",
        "provider": "p",
        "usage": figures,
    }
    story("usage.reported", counter_kind="snapshot", **same)
    story("model_call.completed", model="m", **same)
    story("turn.completed")
    record = story.turn().record
    assert told(record["usage"]) == {
        "input_uncached": 10,
        "cache_read": 2,
        "cache_write_other": 3,
        "output": 5,
        "reasoning": 2,
        "total_input": 15,
        "reported": 1,
        "total": 1,
    }
    assert record["round_trips"] == 1


def test_c4_a_running_total_that_falls_begins_again_at_zero() -> None:
    story = Story(turn="t")
    story("turn.started")
    for output in (100, 100, 250, 250, 40, 70):
        story("usage.reported", counter_kind="cumulative", provider="openai", usage=usage(output=output))
    story("turn.completed")
    turn = story.turn()
    assert turn.record["usage"]["output"] == 320
    assert checks(turn) == ["usage_counter_reset"]


def test_c9_missing_and_orphan_results_and_a_late_one() -> None:
    story = Story(turn="t")
    story("turn.started")
    story("tool_call.requested", tool="t1", tool_name="bash")
    story("tool_call.completed", tool="t2", status="ok")
    story("turn.completed")
    turn = story.turn()
    assert pairings(turn) == {"t1": "missing_result", "t2": "orphan_result"}
    assert checks(turn) == ["tool_missing_result", "tool_orphan_result"]
    assert turn.record["grade"] == "partial"
    before = turn.digest
    story("tool_call.completed", tool="t1", status="ok")
    turn = story.turn()
    assert pairings(turn) == {"t1": "late_result", "t2": "orphan_result"}
    assert turn.digest != before


def test_c11_a_running_total_from_a_known_start() -> None:
    story = Story(turn="t")
    story("turn.started", provider_thread="th")
    first = usage(input=12, output=3, cache_read=2, reasoning=1)
    thread: dict[str, Any] = {
        "provider": "openai",
        "token_convention": "inclusive",
        "counter_kind": "cumulative",
        "provider_thread": "th",
    }
    story("usage.reported", usage=first, last=first, **thread)
    story(
        "usage.reported",
        usage=usage(input=20, output=5, cache_read=2, reasoning=1),
        last=usage(input=8, output=2, cache_read=0, reasoning=0),
        **thread,
    )
    story("turn.completed")
    turn = story.turn()
    assert told(turn.record["usage"]) == {
        "input_uncached": 18,
        "cache_read": 2,
        "total_input": 20,
        "output": 5,
        "reasoning": 1,
        "reported": 1,
        "total": 1,
    }
    assert checks(turn) == []
    assert turn.record["grade"] == "complete"


def test_c12_a_total_first_seen_late_counts_its_last_request_alone() -> None:
    story = Story(turn="t")
    story("turn.started")
    story(
        "usage.reported",
        provider="openai",
        token_convention="inclusive",
        counter_kind="cumulative",
        provider_thread="th",
        usage=usage(input=100, output=50, cache_read=2, reasoning=1),
        last=usage(input=10, output=5, cache_read=2, reasoning=1),
    )
    story("turn.completed")
    turn = story.turn()
    assert turn.record["usage"]["total_input"] == 10
    assert turn.record["usage"]["output"] == 5
    assert [part.fidelity for part in turn.parts] == ["lower_bound"]
    assert checks(turn) == ["usage_unknown_start"]
    assert turn.record["grade"] == "partial"


def thread_total(story: Story, turn: str, value: int, last: int | None = None, **more: Any) -> Event:
    given = {} if last is None else {"last": usage(input=last)}
    return story(
        "usage.reported",
        turn=turn,
        provider="openai",
        counter_kind="cumulative",
        provider_thread="th",
        usage=usage(input=value),
        **given,
        **more,
    )


@pytest.mark.parametrize("late", [False, True])
def test_c13_the_second_report_of_a_turn_moves_its_successors_baseline(late: bool) -> None:
    story = Story()
    story("turn.started", turn="a", seq=0, second=0)
    thread_total(story, "a", 20, seq=1, second=1)
    story("turn.completed", turn="a", seq=2, second=2)
    if not late:
        thread_total(story, "a", 30, seq=9, second=9)
    story("turn.started", turn="b", seq=3, second=3)
    thread_total(story, "b", 50, 20, seq=4, second=4)
    story("turn.completed", turn="b", seq=5, second=5)
    if late:
        thread_total(story, "a", 30, seq=9, second=9)
    fold = story.fold()
    assert [turn.record["usage"]["total_input"] for turn in fold.turns] == [30, 20]
    assert total(story, "total_input") == 50


def test_c13b_a_contradiction_adds_nothing_and_the_next_turn_starts_from_what_was_kept() -> None:
    story = Story()
    story("turn.started", turn="a")
    for value, last in ((20, 20), (40, 20), (30, 10)):
        thread_total(story, "a", value, last)
    story("turn.completed", turn="a")
    story("turn.started", turn="b")
    thread_total(story, "b", 60, 10)
    story("turn.completed", turn="b")
    fold = story.fold()
    assert [turn.record["usage"]["total_input"] for turn in fold.turns] == [40, 20]
    assert checks(fold) == ["usage_counter_contradiction"]


def test_c14_after_a_turn_that_used_the_thread_in_silence_the_start_is_unknown() -> None:
    story = Story()
    story("turn.started", turn="a", provider_thread="th")
    thread_total(story, "a", 20)
    story("turn.completed", turn="a")
    story("turn.started", turn="b", provider_thread="th")
    story("usage.reported", turn="b", provider="openai", model="m", final=True, usage=usage(input=30))
    story("turn.completed", turn="b")
    story("turn.started", turn="c", provider_thread="th")
    thread_total(story, "c", 60, 10)
    story("turn.completed", turn="c")
    fold = story.fold()
    assert [turn.record["usage"]["total_input"] for turn in fold.turns] == [20, 30, 10]
    assert checks(fold) == ["usage_unknown_start"]
    assert checks(fold.turns[2]) == ["usage_unknown_start"]


@pytest.mark.parametrize("origin", ["mcp", None])
def test_c16_a_proxy_entry_and_its_transport_are_one_tool_call_and_listing_tools_is_none(
    origin: str | None,
) -> None:
    story = Story(turn="t")
    story("turn.started")
    story("tool_call.requested", tool="t1", tool_name="bash", call_tool_origin="native")
    story("tool_call.completed", tool="t1", status="ok")
    proxied = {} if origin is None else {"call_tool_origin": origin, "server_name": "srv"}
    story("tool_call.requested", tool="t2", tool_name="srv__x", **proxied)
    story("mcp.observed", method="tools/list", direction="request", server_name="srv", request_id=1)
    story("mcp.observed", method="tools/list", direction="response", server_name="srv", request_id=1)
    transport: Row = {"method": "tools/call", "server_name": "srv", "tool_name": "x", "request_id": 2}
    story("mcp.observed", direction="request", **transport)
    story("mcp.observed", direction="response", **transport)
    story("tool_call.completed", tool="t2", status="ok")
    story("turn.completed")
    turn = story.turn()
    assert [(row["tool_name"], row["pairing"]) for row in turn.tools] == [
        ("bash", "paired"),
        ("srv__x", "paired"),
    ]
    proxy = turn.tools[1]
    assert (proxy["server_name"], proxy["method"], proxy["request_id"]) == ("srv", "tools/call", "2")
    assert checks(turn) == []


def test_c17_unknown_is_not_zero_and_sums_say_who_reported() -> None:
    story = Story(turn="t", provider="openai", model="m")
    story("turn.started")
    story("model_call.completed", call="1", usage={"input": 10, "output": 20})
    story("model_call.completed", call="2", usage={"input": None, "output": None})
    story("turn.completed")
    turn = story.turn()
    assert len(turn.calls) == 2
    assert (turn.record["usage"]["total_input"], turn.record["usage"]["output"]) == (10, 20)
    assert (turn.record["usage"]["reported"], turn.record["usage"]["total"]) == (1, 2)
    assert turn.record["usage"]["cache_read"] is None


def test_c18_two_exchanges_that_use_one_tool_call_id_are_two_calls() -> None:
    story = Story(turn="t")
    story("turn.started")
    story("tool_call.requested", tool="gemini_read_file_0", call="1", tool_name="read_file")
    story("tool_call.completed", tool="gemini_read_file_0", status="ok")
    story("tool_call.requested", tool="gemini_read_file_0", call="2", tool_name="read_file")
    story("turn.completed")
    turn = story.turn()
    assert [(row["requested_by"], row["pairing"]) for row in turn.tools] == [
        ("1", "paired"),
        ("2", "missing_result"),
    ]


@pytest.mark.parametrize("started", [False, True])
def test_c19_failures_are_calls_and_count_as_retries_of_what_follows(started: bool) -> None:
    story = Story(turn="t")
    story("turn.started")
    for number, code in enumerate((429, 429, 200)):
        call = str(number)
        if started:
            story("model_call.started", call=call, provider="openai", model="m")
        if code == 200:
            story(
                "model_call.completed",
                call=call,
                provider="openai",
                model="m",
                status_code=code,
                usage=usage(input=20, output=5, cache_read=0),
            )
        else:
            story("model_call.failed", call=call, error_class="rate_limit", status_code=code)
    story("turn.completed")
    turn = story.turn()
    assert [row["status"] for row in turn.calls] == ["failed", "failed", "completed"]
    assert [row["retries"] for row in turn.calls] == [0, 1, 2]
    assert told(turn.record["usage"]) == {
        "input_uncached": 20,
        "cache_read": 0,
        "output": 5,
        "total_input": 20,
        "reported": 1,
        "total": 1,
    }


def test_c21_guards_and_candidates_are_capped_and_flagged() -> None:
    story = Story(turn="t")
    story("turn.started")
    for number in range(30):
        story("guard.evaluated", guard=f"g{number}", outcome="passed")
    story("transition.decided", state="s", verdict="go", candidates=[f"c{number}" for number in range(30)])
    story("turn.completed")
    record = story.turn().record
    assert [guard["guard"] for guard in record["guards_evaluated"]] == [f"g{number}" for number in range(24)]
    assert record["verdict"]["candidates"] == [f"c{number}" for number in range(24)]
    assert record["truncated"] == {"guards": True, "candidates": True}
    assert record["counts"]["events"] == 33


def test_c22_zero_is_filled_and_null_is_missing() -> None:
    story = Story(turn="t")
    story("turn.started")
    story("state.observed", state="a", when="before", slots={}, required=["early"])
    story(
        "state.observed",
        state="b",
        when="after",
        slots={"count": 0, "name": None},
        required=["count", "name"],
    )
    story("turn.completed")
    record = story.turn().record
    assert record["required_slots_in_state"] == ["count", "name"]
    assert record["missing_required_slots"] == ["name"]


def test_c26_what_no_call_explains_of_a_running_total_is_unattributed() -> None:
    story = Story(turn="t", provider="openai")
    story("turn.started")
    for call, figures in (("1", usage(input=300, output=30)), ("2", usage(input=180, output=10))):
        story("model_call.completed", call=call, model="m", usage=figures)
    story("usage.reported", counter_kind="cumulative", usage_stream="u", usage=usage(input=500, output=40))
    story("turn.completed")
    turn = story.turn()
    assert (turn.record["usage"]["total_input"], turn.record["usage"]["output"]) == (500, 40)
    assert told(turn.record["unattributed"]) == {"total_input": 20, "output": 0}
    assert (turn.record["usage"]["reported"], turn.record["usage"]["total"]) == (1, 1)
    assert checks(turn) == ["usage_call_total_differs"]
    assert [row["counts"] for row in turn.calls] == [False, False]


def test_c27_one_message_seen_live_and_in_the_transcript_is_one_call_told_by_the_response() -> None:
    story = Story(turn="t", provider="anthropic", model="m", message_id="msg_1")
    story("turn.started", provider=None, model=None, message_id=None)
    story("model_call.completed", call="1", usage=usage(output=118))
    story(
        "usage.reported",
        stream="file:transcript",
        source="transcript",
        stop_reason="end_turn",
        usage=usage(output=120),
    )
    turn = story.turn()
    assert [row["output_tokens"] for row in turn.calls] == [118]
    assert turn.calls[0]["usage_source"] == "response"


def test_c7_every_order_of_a_turns_events_gives_one_digest() -> None:
    story = Story(turn="t")
    story("turn.started", second=0)
    story("tool_call.requested", tool="x", tool_name="bash", second=1)
    story("tool_call.completed", tool="x", status="ok", second=1)
    story("usage.reported", provider="openai", model="m", usage=usage(input=1, output=1), second=2)
    story("turn.completed", second=3)
    digests = {
        fold_session("default", "s", list(order)).turns[0].digest for order in permutations(story.events)
    }
    assert len(digests) == 1
